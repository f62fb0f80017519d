# Writes the kernels' sources as C text: cmake -DROOT=src -DFILES="a;b" -DOUT=x.c -P embed.cmake
# NVRTC gets them at run time under these names.
set(arrays "")
set(table "")
set(k 0)
foreach(name ${FILES})
    file(READ ${ROOT}/${name} hex HEX)
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
    string(REGEX REPLACE "(0x[0-9a-f][0-9a-f],0x[0-9a-f][0-9a-f],0x[0-9a-f][0-9a-f],0x[0-9a-f][0-9a-f],0x[0-9a-f][0-9a-f],0x[0-9a-f][0-9a-f],0x[0-9a-f][0-9a-f],0x[0-9a-f][0-9a-f],)" "\\1\n" bytes "${bytes}")
    string(APPEND arrays "static const char text${k}[] = {${bytes}0};\n")
    string(APPEND table "    {\"${name}\", text${k}},\n")
    math(EXPR k "${k} + 1")
endforeach()
file(WRITE ${OUT} "#include \"core/device/embedded.h\"\n\n${arrays}
const oriel_embedded oriel_embedded_files[] = {\n${table}    {0},\n};\n")
