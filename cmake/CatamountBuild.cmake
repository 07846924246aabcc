# How everything of ours is compiled. `catamount_target(NAME)` applies it to one target.

if(CATAMOUNT_TOP_LEVEL)
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
  if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
  endif()
  find_program(CATAMOUNT_CCACHE ccache)
  if(CATAMOUNT_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    # Paths relative to the checkout: a second clone finds what the first one compiled.
    set(CMAKE_CXX_COMPILER_LAUNCHER
        env "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1 "${CATAMOUNT_CCACHE}")
  endif()
endif()

# Flags that must be the same in every object of the build.
if(CATAMOUNT_SANITIZE)
  add_compile_options("-fsanitize=${CATAMOUNT_SANITIZE}" -fno-sanitize-recover=all
                      -fno-omit-frame-pointer)
  add_link_options("-fsanitize=${CATAMOUNT_SANITIZE}")
endif()
if(CATAMOUNT_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
if(CATAMOUNT_COVERAGE)
  add_compile_options(--coverage -fprofile-update=atomic)
  add_link_options(--coverage)
endif()

set(CATAMOUNT_WARNINGS -Wall -Wextra -Wshadow)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  list(APPEND CATAMOUNT_WARNINGS -Wno-restrict)  # false alarms on std::string (GCC bug 105651)
endif()
if(CATAMOUNT_WERROR)
  list(APPEND CATAMOUNT_WARNINGS -Werror)
endif()
list(JOIN CATAMOUNT_WARNINGS "," CATAMOUNT_CUDA_WARNINGS)

function(catamount_target name)
  target_compile_features(${name} PUBLIC cxx_std_20)
  set_target_properties(${name} PROPERTIES CXX_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON)
  # -Wpedantic is for C++ only: the code that nvcc hands to the host compiler does not pass it.
  target_compile_options(${name} PRIVATE
    "$<$<COMPILE_LANGUAGE:CXX>:${CATAMOUNT_WARNINGS};-Wpedantic>"
    "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=${CATAMOUNT_CUDA_WARNINGS}>")
endfunction()

# Source files of one folder; files added later are found by the next build.
function(catamount_sources variable)
  set(patterns ${ARGN})
  list(TRANSFORM patterns PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
  file(GLOB files CONFIGURE_DEPENDS ${patterns})
  set(${variable} ${files} PARENT_SCOPE)
endfunction()
