# Every tests/{unit,multi,fault,gpu}/*.c is one program in <build>/tests/.
#
# A program of tests/unit runs under ctest. One of tests/multi or tests/fault
# does when it says how, otherwise pytest starts it. The first lines say it:
#   /* labels: tsan valgrind */   run it under these tools as well; valgrind-soak
#                                 is for `make soak` alone
#   /* processes: 4 */            run it as `oriel run -n 4 -- program`
# Exit code 77 is a skip; the program prints the reason.

# What they share: tests/support/*.c, included as "support/x.h".
file(GLOB_RECURSE support_sources CONFIGURE_DEPENDS tests/support/*.c)
if(support_sources)
    add_library(oriel_test_support STATIC ${support_sources})
    target_link_libraries(oriel_test_support PUBLIC oriel_core)
    target_include_directories(oriel_test_support PUBLIC ${CMAKE_SOURCE_DIR}/tests)
endif()

function(oriel_test_program source)
    get_filename_component(name ${source} NAME_WE)
    add_executable(${name} ${source})
    target_link_libraries(${name} PRIVATE
        $<TARGET_NAME_IF_EXISTS:oriel_test_support> oriel_core)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    # TSan runs those with its label alone, ASan those that need no GPU.
    oriel_test_header(${source} labels labels)
    if((ORIEL_SANITIZE STREQUAL "thread" AND NOT "tsan" IN_LIST labels)
       OR (ORIEL_SANITIZE STREQUAL "address" AND source MATCHES "/tests/gpu/"))
        set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
    endif()
endfunction()

# What `/* key: words */` in the first lines of `source` says, as a list.
function(oriel_test_header source key words_p)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
    file(STRINGS ${source} head LIMIT_INPUT 400 REGEX "^/\\* ${key}: ")
    string(REGEX MATCH "${key}: ([a-z0-9 -]*[a-z0-9])" found "${head}")
    string(REPLACE " " ";" words "${CMAKE_MATCH_1}")
    if(NOT found)
        set(words "")
    endif()
    set(${words_p} "${words}" PARENT_SCOPE)
endfunction()

function(oriel_test_register source)
    get_filename_component(name ${source} NAME_WE)
    oriel_test_header(${source} labels labels)
    add_test(NAME ${name} COMMAND ${ARGN})
    set_tests_properties(${name} PROPERTIES
        LABELS "${labels}" TIMEOUT 600 SKIP_RETURN_CODE 77)
endfunction()

# tests/fake has what a machine may lack: libraries that programs open at run time, under
# <build>/tests/fake/<file>. They are as foreign as the real ones: no sanitizer is in them.
function(oriel_fake_library name file)
    add_library(${name} MODULE ${ARGN})
    target_include_directories(${name} PRIVATE src include)
    target_compile_options(${name} PRIVATE -std=gnu11 -Wall -Wextra)
    target_link_options(${name} PRIVATE -Wl,-soname,${file})
    set_target_properties(${name} PROPERTIES PREFIX "" SUFFIX "" OUTPUT_NAME ${file}
        C_VISIBILITY_PRESET default LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/fake)
endfunction()

if(ORIEL_TESTS)
    oriel_fake_library(fake_cuda libcuda.so.1 tests/fake/cuda.c tests/fake/cuda_stubs.c)
    oriel_fake_library(fake_nvtx nvtx.so tests/fake/nvtx.c)
    oriel_fake_library(fake_nccl libnccl.so.2 tests/fake/nccl.c tests/fake/nccl_stubs.c)
    oriel_fake_library(fake_gin libnccl-rma-test.so tests/fake/gin.c tests/fake/gin_net.c)

    find_path(CMOCKA_INCLUDE_DIR cmocka.h)
    find_library(CMOCKA_LIBRARY cmocka)
    file(GLOB_RECURSE unit_sources CONFIGURE_DEPENDS tests/unit/test_*.c)
    if(CMOCKA_INCLUDE_DIR AND CMOCKA_LIBRARY)
        foreach(source ${unit_sources})
            get_filename_component(name ${source} NAME_WE)
            oriel_test_program(${source})
            target_include_directories(${name} SYSTEM PRIVATE ${CMOCKA_INCLUDE_DIR})
            target_link_libraries(${name} PRIVATE ${CMOCKA_LIBRARY})
            add_dependencies(${name} fake_cuda fake_nvtx fake_nccl)
            oriel_test_register(${source} ${name})
        endforeach()
    else()
        message(STATUS "cmocka was not found: the unit tests are left out (libcmocka-dev)")
    endif()

    # For tests/gpu/c/abi.c alone, which skips without it.
    find_path(CUDA_INCLUDE_DIR cuda.h HINTS /usr/local/cuda/include)
    file(GLOB program_sources CONFIGURE_DEPENDS
        tests/multi/programs/*.c tests/multi/programs/memory/*.c tests/fault/*.c tests/gpu/c/*.c)
    foreach(source ${program_sources})
        get_filename_component(name ${source} NAME_WE)
        oriel_test_program(${source})
        if(name STREQUAL "abi" AND CUDA_INCLUDE_DIR)
            target_include_directories(abi SYSTEM PRIVATE ${CUDA_INCLUDE_DIR})
        endif()
        oriel_test_header(${source} processes processes)
        if(processes AND TARGET oriel_command)
            oriel_test_register(${source} oriel_command run -n ${processes} -- $<TARGET_FILE:${name}>)
        endif()
    endforeach()
endif()

if(ORIEL_FUZZ)
    # What reads the bytes of strangers, and what that stands on.
    file(GLOB fuzzed_sources CONFIGURE_DEPENDS src/base/*.c src/core/store/*.c)
    add_library(oriel_fuzzed STATIC ${fuzzed_sources})
    target_include_directories(oriel_fuzzed PUBLIC include src)
    target_link_libraries(oriel_fuzzed PUBLIC oriel_flags Threads::Threads)
    file(GLOB fuzz_sources CONFIGURE_DEPENDS tests/fuzz/fuzz_*.c)
    foreach(source ${fuzz_sources})
        get_filename_component(name ${source} NAME_WE)
        add_executable(${name} ${source})
        target_link_libraries(${name} PRIVATE oriel_fuzzed)
        target_link_options(${name} PRIVATE -fsanitize=fuzzer)
        set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    endforeach()
endif()
