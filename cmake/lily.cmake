# Flags, dependencies and the two functions that every folder uses.

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)

add_library(lily_flags INTERFACE)
target_compile_options(lily_flags INTERFACE
  -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wundef
  # A sum must not depend on whether the compiler found a fused multiply-add.
  -ffp-contract=off -fno-math-errno)
target_compile_definitions(lily_flags INTERFACE _GNU_SOURCE _DARWIN_C_SOURCE)
target_include_directories(lily_flags INTERFACE ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(lily_flags INTERFACE Threads::Threads m)
if(LILY_SANITIZE)
  target_compile_options(lily_flags INTERFACE -fsanitize=${LILY_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  target_link_options(lily_flags INTERFACE -fsanitize=${LILY_SANITIZE})
endif()
if(LILY_FUZZ)
  target_compile_options(lily_flags INTERFACE -fsanitize=fuzzer-no-link)    # coverage of what is fuzzed
  target_link_options(lily_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# lily_part(NAME SOURCES … LIBS …): one folder of src as a static library lily_NAME.
function(lily_part name)
  cmake_parse_arguments(PART "" "" "SOURCES;LIBS" ${ARGN})
  add_library(lily_${name} STATIC ${PART_SOURCES})
  target_link_libraries(lily_${name} PUBLIC lily_flags ${PART_LIBS})
endfunction()

# lily_test(NAME SOURCES … LIBS … ARGS … LABELS … TIMEOUT s): one cmocka program, run by ctest under NAME.
function(lily_test name)
  cmake_parse_arguments(TEST "" "TIMEOUT" "SOURCES;LIBS;ARGS;LABELS" ${ARGN})
  add_executable(${name} ${TEST_SOURCES})
  target_link_libraries(${name} PRIVATE lily_flags ${TEST_LIBS} PkgConfig::CMOCKA)
  target_compile_definitions(${name} PRIVATE LILY_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
                                             LILY_BINARY_DIR="${PROJECT_BINARY_DIR}")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name} ${TEST_ARGS})
  if(NOT TEST_TIMEOUT)
    set(TEST_TIMEOUT 300)
  endif()
  if(LILY_SANITIZE)
    math(EXPR TEST_TIMEOUT "${TEST_TIMEOUT} * 5")
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${TEST_TIMEOUT} LABELS "${TEST_LABELS}")
endfunction()

# lily_pytest(NAME FILES … LABELS … TIMEOUT s): tests in Python, run in the virtual environment that `make test`
# makes.  They get build/lily and the build folder by the options of tests/conftest.py.
set(LILY_PYTHON "" CACHE FILEPATH "python with tests/requirements.txt; empty or absent: no tests in Python")
function(lily_pytest name)
  cmake_parse_arguments(TEST "" "TIMEOUT" "FILES;LABELS" ${ARGN})
  if(NOT LILY_PYTHON)
    return()
  endif()
  if(NOT TEST_TIMEOUT)
    set(TEST_TIMEOUT 600)
  endif()
  add_test(NAME ${name} WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}
    COMMAND ${LILY_PYTHON} -m pytest -q -p no:cacheprovider --build-dir ${PROJECT_BINARY_DIR} ${TEST_FILES})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${TEST_TIMEOUT} LABELS "${TEST_LABELS}"
    ENVIRONMENT "PYTHONDONTWRITEBYTECODE=1")
endfunction()

# lily_fuzz(NAME SOURCES … LIBS …): one libFuzzer target, built only with -DLILY_FUZZ=ON.
function(lily_fuzz name)
  if(NOT LILY_FUZZ)
    return()
  endif()
  cmake_parse_arguments(FUZZ "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${FUZZ_SOURCES})
  target_link_libraries(${name} PRIVATE lily_flags ${FUZZ_LIBS})
  target_compile_options(${name} PRIVATE -fsanitize=fuzzer)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/fuzz)
endfunction()

# lily_embed(OUT NAME FILE): OUT in the build folder defines NAME (bytes, a NUL after them) and NAME_len.
function(lily_embed out name file)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(READ ${file} hex HEX)
  string(LENGTH "${hex}" length)
  math(EXPR length "${length} / 2")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${out} CONTENT
"#include <stddef.h>
extern const unsigned char ${name}[];
extern const size_t ${name}_len;
const unsigned char ${name}[] = {${bytes}0};
const size_t ${name}_len = ${length};
")
endfunction()
