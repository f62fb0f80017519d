#ifndef ORIEL_TOOLS_CHOICES_H
#define ORIEL_TOOLS_CHOICES_H

/* Prints how operations between so many processes go here; NULL: one for each core. */
int oriel_choices_main(const char *processes);

#endif
