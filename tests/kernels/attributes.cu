#include <oriel/kernel.h>

static size_t length(const char *s)
{
    size_t n = 0;

    while (s[n] != 0)
        n++;
    return n;
}

/* Results and operands in any order, all kinds of attributes. */
ORIEL_KERNEL(echo)
(oriel_team *team, double *numbers, const char *title, int8_t small, const int32_t *x, int64_t big,
 uint8_t *letters, float real, double exact, bool yes,
 const char *other /* the second one, with a ) and a , */)
{
    double all[] = {(double)small,
                    (double)big,
                    (double)real,
                    exact,
                    yes ? 1.0 : 0.0,
                    (double)x[0],
                    (double)oriel_rank(team),
                    (double)oriel_size(team),
                    (double)length(other)};

    oriel_for_each (i, team, sizeof all / sizeof *all) {
        numbers[i] = all[i];
    }
    oriel_for_each (k, team, oriel_count(team, letters)) {
        letters[k] = (uint8_t)(k < length(title) ? title[k] : 0);
    }
}
