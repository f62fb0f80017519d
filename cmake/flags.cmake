# Compile and link flags of every target, as the interface library oriel_flags.
add_library(oriel_flags INTERFACE)

# RelWithDebInfo keeps assert(), which CMake's own flags would switch off.
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g")
set(CMAKE_C_FLAGS_RELEASE "-O2 -DNDEBUG")

# Empty, not 1: a file that defines it itself then repeats the same definition.
target_compile_definitions(oriel_flags INTERFACE _GNU_SOURCE=)
# Sums must give the same bits on every machine: no fused multiply-add behind
# the code's back.
target_compile_options(oriel_flags INTERFACE -Wall -Wextra -ffp-contract=off)
if(ORIEL_WERROR)
    target_compile_options(oriel_flags INTERFACE -Werror)
endif()

if(ORIEL_SANITIZE STREQUAL "address")
    set(sanitize -fsanitize=address,undefined -fno-sanitize-recover=all)
elseif(ORIEL_SANITIZE STREQUAL "thread")
    set(sanitize -fsanitize=thread)
elseif(ORIEL_SANITIZE)
    message(FATAL_ERROR "ORIEL_SANITIZE is \"${ORIEL_SANITIZE}\": address, thread or empty")
endif()

if(ORIEL_FUZZ)
    if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
        message(FATAL_ERROR "ORIEL_FUZZ needs clang: -DCMAKE_C_COMPILER=clang")
    endif()
    set(sanitize -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all)
endif()

# Reports need lines and whole stacks; less optimizing compiles in half the time.
if(sanitize)
    target_compile_options(oriel_flags INTERFACE ${sanitize} -O1 -g1 -fno-omit-frame-pointer)
    target_link_options(oriel_flags INTERFACE ${sanitize})
else()
    target_link_options(oriel_flags INTERFACE -Wl,--no-undefined)
endif()
