/* Sources that the library carries as text, for the compiler at run time. */
#ifndef ORIEL_CORE_DEVICE_EMBEDDED_H
#define ORIEL_CORE_DEVICE_EMBEDDED_H

typedef struct oriel_embedded {
    const char *name; /* as in #include */
    const char *text; /* the whole file */
} oriel_embedded;

/* Made by cmake/embed.cmake; a NULL name ends it. */
extern const oriel_embedded oriel_embedded_files[];

#endif
