# What the build needs from outside; all of it is in Debian and Ubuntu (scripts/install_deps.sh).
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(OneDNN REQUIRED)  # the CPU backend's GEMM
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
if(CATAMOUNT_TOOLS)
  find_package(CLI11 REQUIRED)
endif()
if(CATAMOUNT_TESTS)
  find_package(GTest REQUIRED)
endif()
