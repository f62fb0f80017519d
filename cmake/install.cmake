# Two destinations: a prefix (cmake --install), or the Python package that
# scikit-build-core makes a wheel of. Both hold the same small tree
#   include/oriel/**.h  lib/liboriel.so*  lib/pkgconfig/oriel.pc
# and the command, which needs none of it.
configure_file(cmake/oriel.pc.in oriel.pc @ONLY)

if(SKBUILD)
    # A wheel holds no symbolic links: the library lies there under the name
    # programs are linked with and the name they load.
    foreach(name liboriel.so liboriel.so.${abi})
        install(PROGRAMS $<TARGET_FILE:oriel> DESTINATION oriel/lib RENAME ${name})
    endforeach()
    set(under oriel/)
    set(bin "${SKBUILD_SCRIPTS_DIR}")
else()
    install(TARGETS oriel LIBRARY DESTINATION lib)
    set(under "")
    set(bin bin)
endif()

install(FILES ${CMAKE_BINARY_DIR}/oriel.pc DESTINATION ${under}lib/pkgconfig)
install(DIRECTORY include/oriel DESTINATION ${under}include FILES_MATCHING PATTERN "*.h")
if(TARGET oriel_command)
    install(TARGETS oriel_command RUNTIME DESTINATION ${bin})
endif()
