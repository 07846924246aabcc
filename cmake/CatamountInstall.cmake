# `cmake --install` and what find_package(catamount) reads afterwards.
include(CMakePackageConfigHelpers)
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/catamount")

install(TARGETS catamount EXPORT catamount_targets
        LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
        ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/catamount"
                  "${PROJECT_BINARY_DIR}/include/catamount"
        DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" FILES_MATCHING PATTERN "*.h")
install(EXPORT catamount_targets NAMESPACE catamount:: FILE catamount-targets.cmake
        DESTINATION "${package_dir}")

configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/catamount-config.cmake.in"
  "${PROJECT_BINARY_DIR}/catamount-config.cmake" INSTALL_DESTINATION "${package_dir}")
# Before 1.0 a minor version may break what the one before promised.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/catamount-config-version.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/catamount-config.cmake"
              "${PROJECT_BINARY_DIR}/catamount-config-version.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/FindOneDNN.cmake"
        DESTINATION "${package_dir}")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}")
