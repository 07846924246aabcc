# Defines OneDNN::OneDNN: the library, and the OpenMP runtime (GCC's) whose thread count we set.
# Not by oneDNN's own CMake package: Debian's asks for OpenCL's development files, which neither we
# nor users of the C interface need.
find_path(ONEDNN_INCLUDE_DIR oneapi/dnnl/dnnl.h)
find_library(ONEDNN_LIBRARY dnnl)
mark_as_advanced(ONEDNN_INCLUDE_DIR ONEDNN_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OneDNN REQUIRED_VARS ONEDNN_LIBRARY ONEDNN_INCLUDE_DIR)
if(OneDNN_FOUND AND NOT TARGET OneDNN::OneDNN)
  add_library(OneDNN::OneDNN UNKNOWN IMPORTED)
  set_target_properties(OneDNN::OneDNN PROPERTIES
    IMPORTED_LOCATION "${ONEDNN_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${ONEDNN_INCLUDE_DIR}"
    INTERFACE_LINK_LIBRARIES gomp)
endif()
