#ifndef ORIEL_TOOLS_CHOICES_H
#define ORIEL_TOOLS_CHOICES_H

/* Prints how operations between so many processes go here, and where they share a GPU of so many
 * multiprocessors; NULL: one for each core, those of an H200. */
int oriel_choices_main(const char *processes, const char *multiprocessors);
/* The part of that about GPUs. */
void oriel_choices_on_gpus(int n, int multiprocessors);

#endif
