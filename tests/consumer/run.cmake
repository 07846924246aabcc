# Installs the build into an empty folder, then builds and runs a project that finds it there.
#   NAME: consumer (main.cpp beside this file) or readme_example; BUILD_DIR; GENERATOR; CXX; FLAGS
set(work "${BUILD_DIR}/package/${NAME}")
file(REMOVE_RECURSE "${work}")
file(MAKE_DIRECTORY "${work}")

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "'${command}' ended with ${status}")
  endif()
endfunction()

set(source "${CMAKE_CURRENT_LIST_DIR}/main.cpp")
if(NAME STREQUAL "readme_example")
  set(source "${work}/example.cpp")
  run("${CMAKE_CURRENT_LIST_DIR}/../../scripts/readme_example.sh" "${source}")
endif()
run("${CMAKE_COMMAND}" --install "${BUILD_DIR}" --prefix "${work}/install")
run("${CMAKE_COMMAND}" -S "${CMAKE_CURRENT_LIST_DIR}" -B "${work}/build" -G "${GENERATOR}"
    "-DCMAKE_CXX_COMPILER=${CXX}" "-DCMAKE_CXX_FLAGS=${FLAGS}" -DCMAKE_BUILD_TYPE=Debug
    "-DCMAKE_PREFIX_PATH=${work}/install" "-DCONSUMER_SOURCE=${source}")
run("${CMAKE_COMMAND}" --build "${work}/build")
run("${work}/build/consumer")
