# Writes which commit the tree is at, as C: cmake -DROOT=. -DOUT=x.c -P commit.cmake
# Every build runs it; the file is written anew only when the commit is another. A tree that is
# no repository, such as an unpacked sdist, is "unknown", wherever it lies.
set(commit "")
execute_process(COMMAND git -C ${ROOT} rev-parse --show-toplevel
                OUTPUT_VARIABLE top OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
file(REAL_PATH ${ROOT} root)
if(top STREQUAL root)
    execute_process(COMMAND git --no-optional-locks -C ${ROOT} describe --always --tags --dirty
                    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(NOT commit)
    set(commit unknown)
endif()
set(text "#include <oriel/oriel.h>

const char *oriel_build_commit(void)
{
    return \"${commit}\";
}
")
set(before "")
if(EXISTS ${OUT})
    file(READ ${OUT} before)
endif()
if(NOT text STREQUAL before)
    file(WRITE ${OUT} "${text}")
endif()
