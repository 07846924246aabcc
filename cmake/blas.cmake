# catamount_blas: oneDNN (package libdnnl-dev), with the OpenMP runtime that Debian and Ubuntu build it for.
# oneDNN's own CMake package is passed over: it asks for OpenCL's headers, which libdnnl-dev does not bring.
# Also included by the installed catamount-config.cmake, hence an imported target and a search of its own.
if(NOT TARGET catamount_blas)
  find_path(CATAMOUNT_DNNL_INCLUDE oneapi/dnnl/dnnl.h)
  find_library(CATAMOUNT_DNNL_LIBRARY dnnl)
  mark_as_advanced(CATAMOUNT_DNNL_INCLUDE CATAMOUNT_DNNL_LIBRARY)
  if(NOT CATAMOUNT_DNNL_INCLUDE OR NOT CATAMOUNT_DNNL_LIBRARY)
    message(FATAL_ERROR "expected oneDNN 2 or newer (Debian, Ubuntu: libdnnl-dev), found none: "
                        "install it, or add its prefix to CMAKE_PREFIX_PATH")
  endif()
  add_library(catamount_blas INTERFACE IMPORTED GLOBAL)
  set_target_properties(catamount_blas PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${CATAMOUNT_DNNL_INCLUDE}"
    INTERFACE_LINK_LIBRARIES "${CATAMOUNT_DNNL_LIBRARY};gomp")
endif()
