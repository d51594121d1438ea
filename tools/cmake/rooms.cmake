# One function per kind of target. A room is a folder (or one idea in it) built as a static library with an explicit list of
# what it depends on; nothing is inherited from a directory, so the list is the layer diagram.

add_library(octavo_options INTERFACE)
target_include_directories(octavo_options INTERFACE ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/generated)
# Products and sums must not be contracted behind our back: the bits are part of the contract (kernels/README.md).
target_compile_options(octavo_options INTERFACE -Wall -Wextra -Werror -Wno-missing-field-initializers -ffp-contract=off -fno-math-errno)
target_compile_definitions(octavo_options INTERFACE OCTAVO_VERSION="${PROJECT_VERSION}")
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # Debian's abseil is built by GCC 12; Clang since 18 mangles constrained templates (absl::Cord's constructors) another way.
  target_compile_options(octavo_options INTERFACE -fclang-abi-compat=17)
endif()
if(OCTAVO_SANITIZE)
  target_compile_options(octavo_options INTERFACE -fsanitize=${OCTAVO_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(octavo_options INTERFACE -fsanitize=${OCTAVO_SANITIZE})
endif()
find_program(OCTAVO_MOLD mold)
if(OCTAVO_MOLD)
  target_link_options(octavo_options INTERFACE -fuse-ld=mold)
endif()

# Presets build in unity (several sources a compilation), which halves the time from nothing. SEPARATE keeps a target out of it: its
# sources reuse each other's local names, or are compiled with flags of their own.

# octavo_library(NAME scheduler_core SRCS a.cc b.cc DEPS common absl::status [SEPARATE])
function(octavo_library)
  cmake_parse_arguments(ARG "SEPARATE" "NAME" "SRCS;DEPS" ${ARGN})
  if(ARG_SRCS)
    add_library(${ARG_NAME} STATIC ${ARG_SRCS})
    if(ARG_SEPARATE)
      set_target_properties(${ARG_NAME} PROPERTIES UNITY_BUILD OFF)
    endif()
    target_link_libraries(${ARG_NAME} PUBLIC octavo_options ${ARG_DEPS})
  else()
    add_library(${ARG_NAME} INTERFACE)
    target_link_libraries(${ARG_NAME} INTERFACE octavo_options ${ARG_DEPS})
  endif()
endfunction()

# octavo_binary(NAME octavo-worker SRCS main.cc DEPS worker_rpc)
function(octavo_binary)
  cmake_parse_arguments(ARG "" "NAME" "SRCS;DEPS" ${ARGN})
  add_executable(${ARG_NAME} ${ARG_SRCS})
  target_link_libraries(${ARG_NAME} PRIVATE octavo_options ${ARG_DEPS})
endfunction()

# octavo_test(NAME scheduler_core_test SRCS block_pool_test.cc DEPS scheduler_core [TIMEOUT 120] [LABELS model]
#             [FIXTURES generated_models] [SEPARATE] [SANITIZED_FILTER -Slow*])   (fixtures are set up in tests/CMakeLists.txt)
# LABELS: model needs the default model; sequential is long and starts no thread, so that `tools/dev sanitize tsan` builds it and leaves
# it out, as it has nothing to find there.
# SANITIZED_FILTER: the --gtest_filter in builds with a sanitizer, where a test may take 5 times its TIMEOUT (seconds).
# Called from a room's own CMakeLists.txt; the sources lie under tests/unit/<the room's path>/. One binary per room.
function(octavo_test)
  if(NOT OCTAVO_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "SEPARATE" "NAME;TIMEOUT;SANITIZED_FILTER" "SRCS;DEPS;LABELS;FIXTURES" ${ARGN})
  set(filter)
  if(ARG_SANITIZED_FILTER AND OCTAVO_SANITIZE)
    set(filter --gtest_filter=${ARG_SANITIZED_FILTER})
  endif()
  file(RELATIVE_PATH room ${CMAKE_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  # A folder under tests/ is its own place.
  set(folder ${CMAKE_SOURCE_DIR}/tests/unit/${room})
  if(room MATCHES "^tests/")
    set(folder ${CMAKE_CURRENT_SOURCE_DIR})
  endif()
  set(sources)
  foreach(source ${ARG_SRCS})
    list(APPEND sources ${folder}/${source})
  endforeach()
  add_executable(${ARG_NAME} ${sources})
  target_link_libraries(${ARG_NAME} PRIVATE octavo_options ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  set_target_properties(${ARG_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  if(ARG_SEPARATE)
    set_target_properties(${ARG_NAME} PROPERTIES UNITY_BUILD OFF)
  endif()
  target_compile_definitions(${ARG_NAME} PRIVATE OCTAVO_SOURCE_DIR="${CMAKE_SOURCE_DIR}" OCTAVO_BUILD_DIR="${CMAKE_BINARY_DIR}")
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(OCTAVO_SANITIZE)
    math(EXPR ARG_TIMEOUT "5 * ${ARG_TIMEOUT}")
  endif()
  add_test(NAME ${ARG_NAME}
           COMMAND ${ARG_NAME} --gtest_output=xml:${CMAKE_BINARY_DIR}/test_results/${ARG_NAME}.xml ${filter})
  set_tests_properties(${ARG_NAME} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}"
                       FIXTURES_REQUIRED "${ARG_FIXTURES}")
endfunction()

# octavo_fuzz(NAME gguf_fuzz SRCS gguf_fuzz.cc DEPS model_gguf): a libFuzzer target; sources under tests/fuzz/, seeds under
# tests/fuzz/corpus/<name without _fuzz>. Without OCTAVO_FUZZ it is a test that runs the committed seeds (if any) once.
function(octavo_fuzz)
  cmake_parse_arguments(ARG "" "NAME" "SRCS;DEPS" ${ARGN})
  list(TRANSFORM ARG_SRCS PREPEND ${CMAKE_SOURCE_DIR}/tests/fuzz/)
  if(NOT OCTAVO_FUZZ)
    list(APPEND ARG_SRCS ${CMAKE_SOURCE_DIR}/tests/fuzz/replay.cc)
  endif()
  add_executable(${ARG_NAME} ${ARG_SRCS})
  target_link_libraries(${ARG_NAME} PRIVATE octavo_options ${ARG_DEPS})
  set_target_properties(${ARG_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
  if(OCTAVO_FUZZ)
    target_link_options(${ARG_NAME} PRIVATE -fsanitize=fuzzer)
  else()
    string(REGEX REPLACE "_fuzz$" "" seeds ${CMAKE_SOURCE_DIR}/tests/fuzz/corpus/${ARG_NAME})
    if(IS_DIRECTORY ${seeds})
      add_test(NAME ${ARG_NAME}_seeds COMMAND ${ARG_NAME} ${seeds})
      set_tests_properties(${ARG_NAME}_seeds PROPERTIES TIMEOUT 120)
    endif()
  endif()
endfunction()
