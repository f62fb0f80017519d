/* Rules, which a model numbers. run.sh drops one at a time: its number is read when the
 * checker runs, so that it is compiled once for all; `hidden` since it is no state. Whoever
 * starts the others calls choose_rules() first. */
hidden byte without;    /* the one rule that a mutant drops */

#define KEEPS(rule) (without != rule)

inline choose_rules()
{
    c_code { without = getenv("WITHOUT") ? atoi(getenv("WITHOUT")) : 0; }
}
