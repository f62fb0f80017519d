#!/bin/sh
# Checks every model in every configuration, and that each rule is needed: a
# mutant is a model without one rule, and must break the property it is there
# for. Prints "PASS name (...)" or "FAIL name (...)" for each; exit 0, 1, or 77
# when a tool is missing.
#
#   run.sh         all; with SOAK=1 also those that take long
#   run.sh NAME    that one, with the steps that lead to the error, if any

# name | model | options | what breaks (mutants only). Options NAME=VALUE are read when the
# checker runs, so that it is compiled once for all rows that differ in them alone.
table() {
    [ "$SOAK" = 1 ] && soak_rows
    cat <<'ROWS'
eager-reuse              | eager  | |
eager-other-record       | eager  | -DSAME_RECORD=0 |
eager-other-key          | eager  | -DSAME_KEY=0 -DWAYS=2 |
eager-three              | eager  | -DN=3 |
eager-two-open           | eager  | -DCALLERS=2 -DROUNDS=1 |
eager-two-open-two-ways  | eager  | -DCALLERS=2 -DROUNDS=1 -DWAYS=2 |
eager-two-open-reuse     | eager  | -DCALLERS=2 -DWAYS=2 -DCOARSE=1 |
eager-late               | eager  | -DDEADLINES=1 -DABSENT=1 |
eager-late-three         | eager  | -DDEADLINES=1 -DABSENT=1 -DN=3 -DCOARSE=1 |
eager-late-leave         | eager  | -DDEADLINES=2 |
eager-death              | eager  | -DDEATHS=1 |
eager-death-late         | eager  | -DDEATHS=1 -DDEADLINES=1 |
eager-death-three        | eager  | -DDEATHS=1 -DN=3 -DROUNDS=1 -DCOARSE=1 |
eager-mismatch           | eager  | -DMISMATCH=1 |
eager-mismatch-three     | eager  | -DMISMATCH=1 -DN=3 -DROUNDS=1 |
eager-mismatch-late      | eager  | -DMISMATCH=2 -DDEADLINES=1 -DN=3 -DROUNDS=1 -DCOARSE=1 |
eager-mismatch-death     | eager  | -DMISMATCH=1 -DDEATHS=1 |
eager-revoked            | eager  | -DSTRANGER=1 |
eager-revoked-late       | eager  | -DSTRANGER=1 -DDEADLINES=1 |
message-reuse            | eager  | -DMESSAGE=1 |
message-ahead            | eager  | -DMESSAGE=1 -DSAME_KEY=0 -DWAYS=2 -DBLOCKS=2 |
message-two-open         | eager  | -DMESSAGE=1 -DCALLERS=2 -DROUNDS=1 -DWAYS=2 -DBLOCKS=2 |
message-late             | eager  | -DMESSAGE=1 -DDEADLINES=1 -DABSENT=1 |
message-late-ahead       | eager  | -DMESSAGE=1 -DDEADLINES=1 -DSAME_KEY=0 -DWAYS=2 -DBLOCKS=2 |
message-death            | eager  | -DMESSAGE=1 -DDEATHS=1 |
message-mismatch         | eager  | -DMESSAGE=1 -DMISMATCH=1 |
message-mismatch-death   | eager  | -DMESSAGE=1 -DMISMATCH=1 -DDEATHS=1 |
message-revoked          | eager  | -DMESSAGE=1 -DSTRANGER=1 |
staged-reuse             | staged | |
staged-reuse-two-slots   | staged | -DK=3 -DD=2 |
staged-three             | staged | -DN=3 -DK=3 -DD=2 -DCOARSE=1 |
staged-late              | staged | -DDEADLINES=1 -DABSENT=1 |
staged-late-three        | staged | -DDEADLINES=1 -DN=3 -DROUNDS=1 -DCOARSE=1 |
staged-death             | staged | -DDEATHS=1 |
staged-death-two-slots   | staged | -DDEATHS=1 -DROUNDS=1 -DK=3 -DD=2 |
staged-death-three       | staged | -DDEATHS=1 -DN=3 -DROUNDS=1 -DCOARSE=1 |
staged-mismatch          | staged | -DMISMATCH=1 |
staged-revoked           | staged | -DSTRANGER=1 |
window-reuse             | staged | -DWINDOWS=2 -DIN_PLACE=1 |
window-some              | staged | -DWINDOWS=1 |
window-two-slots         | staged | -DWINDOWS=2 -DIN_PLACE=1 -DK=3 -DD=2 |
window-three             | staged | -DWINDOWS=2 -DIN_PLACE=1 -DN=3 -DROUNDS=1 -DCOARSE=1 |
window-late              | staged | -DWINDOWS=2 -DDEADLINES=1 |
window-death             | staged | -DWINDOWS=2 -DDEATHS=1 |
window-one-shot          | staged | -DWINDOWS=2 -DONE_SHOT=1 |
window-one-shot-some     | staged | -DWINDOWS=1 -DONE_SHOT=1 |
window-one-shot-in-place | staged | -DWINDOWS=2 -DONE_SHOT=1 -DIN_PLACE=1 |
window-one-shot-two-slots | staged | -DWINDOWS=1 -DONE_SHOT=1 -DK=3 -DD=2 |
window-one-shot-three    | staged | -DWINDOWS=2 -DONE_SHOT=1 -DN=3 -DROUNDS=1 -DCOARSE=1 |
window-one-shot-late     | staged | -DWINDOWS=1 -DONE_SHOT=1 -DDEADLINES=1 |
window-one-shot-death    | staged | -DWINDOWS=1 -DONE_SHOT=1 -DDEATHS=1 |
one-shot-reuse           | staged | -DONE_SHOT=1 |
one-shot-three           | staged | -DONE_SHOT=1 -DN=3 -DK=3 -DD=2 -DROUNDS=1 -DCOARSE=1 |
one-shot-late            | staged | -DONE_SHOT=1 -DDEADLINES=1 |
one-shot-death           | staged | -DONE_SHOT=1 -DDEATHS=1 |
pull-reuse               | pull   | |
pull-late                | pull   | -DDEADLINES=1 -DABSENT=1 |
pull-death               | pull   | -DDEATHS=1 |
pull-mismatch            | pull   | -DMISMATCH=1 |
pull-revoked             | pull   | -DSTRANGER=1 |
direct-reuse             | direct | |
direct-one-chunk         | direct | -DK=1 -DDEADLINES=1 |
direct-late              | direct | -DDEADLINES=1 -DABSENT=1 |
direct-late-three        | direct | -DDEADLINES=1 -DN=3 -DROUNDS=1 |
direct-mismatch          | direct | -DMISMATCH=1 |
direct-revoked           | direct | -DSTRANGER=1 |
pool-half                | pool   | |
pool-begun               | pool   | -DORDERED=1 |
bell-wakes               | bell   | |
bell-death               | bell   | -DDEATHS=1 |
ring-three               | ring   | |
ring-rooted              | ring   | -DROOTED=1 |
lane-three               | lane   | -DN=3 |
lane-one-slot            | lane   | -DD=1 |
lane-started             | lane   | -DOPEN=2 |
lane-started-one-slot    | lane   | -DOPEN=2 -DD=1 |
lane-started-three       | lane   | -DOPEN=2 -DN=3 -DD=1 |
lane-late                | lane   | -DDEADLINES=1 -DABSENT=1 |
lane-late-three          | lane   | -DDEADLINES=1 -DABSENT=1 -DN=3 -DOPS=2 -DD=1 |
lane-late-started        | lane   | -DDEADLINES=1 -DOPEN=2 |
lane-death               | lane   | -DDEATHS=1 -DOPEN=2 -DOPS=2 |
lane-death-late          | lane   | -DDEATHS=1 -DDEADLINES=1 |
lane-death-three         | lane   | -DDEATHS=1 -DN=3 -DOPS=2 -DD=1 |
lane-mismatch            | lane   | -DMISMATCH=2 -DOPEN=2 |
lane-mismatch-three      | lane   | -DMISMATCH=1 -DN=3 -DOPS=2 -DD=1 |
lane-mismatch-late       | lane   | -DMISMATCH=2 -DDEADLINES=1 -DOPEN=2 -DOPS=2 |
lane-mismatch-death      | lane   | -DMISMATCH=1 -DDEATHS=1 |
lane-revoked             | lane   | -DSTRANGER=1 -DOPEN=2 -DOPS=2 |
lane-large               | lane   | -DLARGE=1 -DOPEN=2 |
lane-large-between       | lane   | -DLARGE=2 -DOPEN=2 -DD=1 |
lane-large-three         | lane   | -DLARGE=1 -DN=3 -DOPS=2 -DD=1 |
lane-large-late          | lane   | -DLARGE=2 -DDEADLINES=1 -DABSENT=1 -DOPEN=2 -DD=1 |
lane-large-late-three    | lane   | -DLARGE=1 -DDEADLINES=1 -DN=3 -DOPS=2 -DD=1 |
lane-large-death         | lane   | -DLARGE=2 -DDEATHS=1 -DD=1 |
lane-large-death-three   | lane   | -DLARGE=1 -DDEATHS=1 -DN=3 -DOPS=1 |
lane-large-mismatch      | lane   | -DLARGE=1 -DMISMATCH=1 -DN=3 -DOPS=2 |
lane-large-mismatch-late | lane   | -DLARGE=1 -DMISMATCH=1 -DDEADLINES=1 -DOPEN=2 -DOPS=2 |
lane-large-or-small      | lane   | -DLARGE=1 -DMISMATCH=1 -DINSTEAD=1 -DN=3 -DOPS=2 |
lane-large-or-alone      | lane   | -DLARGE=1 -DMISMATCH=1 -DINSTEAD=4 -DN=3 -DOPS=2 |
lane-large-or-alone-late | lane   | -DLARGE=1 -DMISMATCH=1 -DINSTEAD=4 -DDEADLINES=1 -DOPEN=2 -DOPS=2 |
lane-large-history       | lane   | -DALONE=1 -DLARGE=2 -DMISMATCH=1 -DOPEN=2 |
lane-large-history-three | lane   | -DALONE=1 -DLARGE=2 -DMISMATCH=1 -DN=3 -DOPS=2 |
lane-large-history-late  | lane   | -DALONE=1 -DLARGE=2 -DMISMATCH=1 -DDEADLINES=1 |
lane-large-history-death | lane   | -DALONE=1 -DLARGE=2 -DMISMATCH=1 -DDEATHS=1 -DOPS=2 |
lane-large-revoked       | lane   | -DLARGE=2 -DSTRANGER=1 -DOPEN=2 -DD=1 |
lane-staged              | lane   | -DLARGE=1 -DSTAGED=1 -DOPEN=2 |
lane-staged-three        | lane   | -DLARGE=1 -DSTAGED=1 -DN=3 -DOPS=2 -DD=1 |
lane-staged-late         | lane   | -DLARGE=2 -DSTAGED=2 -DDEADLINES=1 -DABSENT=1 -DOPEN=2 -DD=1 |
lane-staged-late-three   | lane   | -DLARGE=1 -DSTAGED=1 -DDEADLINES=1 -DN=3 -DOPS=2 -DD=1 |
lane-staged-death        | lane   | -DLARGE=2 -DSTAGED=2 -DDEATHS=1 -DD=1 |
lane-staged-mismatch     | lane   | -DLARGE=1 -DSTAGED=1 -DMISMATCH=1 -DN=3 -DOPS=2 |
lane-staged-or-alone     | lane   | -DLARGE=1 -DSTAGED=1 -DMISMATCH=1 -DINSTEAD=4 -DN=3 -DOPS=2 |
lane-staged-history      | lane   | -DALONE=1 -DLARGE=2 -DSTAGED=2 -DMISMATCH=1 -DOPEN=2 |
lane-staged-revoked      | lane   | -DLARGE=2 -DSTAGED=2 -DSTRANGER=1 -DOPEN=2 -DD=1 |
lane-shown               | lane   | -DSHOWN=1 -DOPEN=2 -DD=1 |
lane-shown-late          | lane   | -DSHOWN=1 -DDEADLINES=1 -DABSENT=1 -DOPEN=2 -DOPS=2 |
lane-shown-death         | lane   | -DSHOWN=1 -DDEATHS=1 -DOPS=2 |
lane-shown-mismatch      | lane   | -DALONE=1 -DSHOWN=2 -DMISMATCH=1 -DN=3 -DOPS=2 |
rooted-broadcast         | rooted | -DBROADCAST=1 -DN=3 |
rooted-ring              | rooted | -DRING=1 -DN=3 -DD=1 |
rooted-late              | rooted | -DBROADCAST=1 -DDEADLINES=1 -DABSENT=1 -DN=3 -DOPS=2 -DD=1 |
rooted-late-ring         | rooted | -DRING=1 -DDEADLINES=1 -DABSENT=1 -DN=3 -DOPS=2 |
rooted-death             | rooted | -DDEATHS=1 |
rooted-mismatch          | rooted | -DMISMATCH=2 -DN=3 -DOPS=2 |
rooted-revoked           | rooted | -DSTRANGER=1 |
rooted-sizes             | rooted | -DWHOLE=10 -DOPS=6 |
rooted-sizes-three       | rooted | -DBROADCAST=1 -DWHOLE=2 -DN=3 -DOPS=4 |
rooted-sizes-three-deep  | rooted | -DWHOLE=4 -DN=3 -DD=3 -DOPS=5 |
device-small             | device | KINDS=1 |
device-small-late        | device | KINDS=1 DEADLINES=2 |
device-small-death       | device | KINDS=1 DEATHS=1 |
device-small-mismatch    | device | KINDS=1 MISMATCH=1 |
device-small-revoked     | device | KINDS=1 STRANGER=1 |
device-large             | device | KINDS=2 |
device-large-late        | device | KINDS=2 DEADLINES=1 ABSENT=1 DIRECT_ONLY=1 |
device-large-mismatch    | device | KINDS=2 MISMATCH=1 |
device-large-revoked     | device | KINDS=2 STRANGER=1 DIRECT_ONLY=1 |
device-ragged-late       | device | KINDS=3 DEADLINES=1 ABSENT=1 DIRECT_ONLY=1 |
device-person-late       | device | KINDS=4 DEADLINES=1 DIRECT_ONLY=1 |
mode                     | mode   | |
registrar                | registrar | |
registrar-graph          | registrar | GRAPH=1 |
registrar-graph-other    | registrar | GRAPH=1 OTHER=1 |
rounds                   | rounds | |
rounds-three             | rounds | -DN=3 CALLS=1 |
appoint                  | appoint | |
appoint-late             | appoint | DEADLINES=2 ABSENT=1 |
appoint-off              | appoint | STRANGER=1 DEADLINES=2 ABSENT=1 |
appoint-three            | appoint | -DN=3 -DCALLS=3 STRANGER=1 DEADLINES=1 ABSENT=1 |
identity                 | identity | WORLDS=3 |
identity-lacks           | identity | LACKS=1 |
identity-raises          | identity | RAISES=1 |
identity-threads         | identity | THREADS=1 WORLDS=1 |
identity-one-program     | identity | THREADS=2 WORLDS=1 |
identity-copies          | identity | COPIES=1 |
identity-graph           | identity | GRAPH=1 EXECUTIONS=1 |
identity-misses          | identity | MISSES=1 WORLDS=3 |
identity-death           | identity | DEATHS=1 EXECUTIONS=1 |
tags                     | tags   | |
ROWS
    mutants eager <<'ROWS'
REVOKE_CHECKS_COMMIT    | -DDEADLINES=1 | agreement
REVOKE_IS_ONE_STEP      | -DDEADLINES=1 | agreement
ABORT_GOES_BY_THE_WORD  | -DSTRANGER=1 | agreement
ARRIVE_CHECKS_REVOKED   | -DDEADLINES=1 | agreement
JOIN_CHECKS_OWN_MARK    | | payload
OWN_MARK_BEFORE_COMPARE | -DSAME_RECORD=0 | success
MISMATCH_REVOKES        | -DMISMATCH=1 | mismatch
MISMATCH_IN_ONE_STEP    | -DMISMATCH=1 | mismatch
FAILURE_ABORTS_COMM     | -DDEADLINES=1 | payload
CLAIMED_IS_ABORTED      | -DDEATHS=1 -DDEADLINES=1 | payload
LOCK_POLLS_ABORT        | -DDEATHS=1 | return
WAIT_POLLS_ABORT        | -DDEATHS=1 | return
WAIT_HAS_DEADLINE       | -DDEADLINES=1 -DABSENT=1 | return
LEFT_IS_ONE_STEP        | | freed
LEAVE_KEEPS_SUCCESS     | -DSTRANGER=1 | agreement
LEAVE_ABORTS_WHEN_LATE  | -DDEADLINES=2 | return
FREE_UNDER_LOCK         | -DCALLERS=2 -DWAYS=2 -DCOARSE=1 | payload
ENTER_UNDER_LOCK        | | freed
PAYLOAD_BEFORE_ARRIVE   | | payload
READ_BEFORE_LEAVE       | | payload
ROWS
    mutants message eager ' -DMESSAGE=1' <<'ROWS'
JOIN_CHECKS_OWN_MARK    | | payload
MISMATCH_REVOKES        | -DMISMATCH=1 | mismatch
FAILURE_ABORTS_COMM     | -DDEADLINES=1 | payload
WAIT_POLLS_ABORT        | -DDEATHS=1 | return
LEFT_IS_ONE_STEP        | | freed
ENTER_UNDER_LOCK        | | freed
PAYLOAD_BEFORE_ARRIVE   | | payload
READ_BEFORE_LEAVE       | | payload
ARRIVE_CHECKS_REVOKED   | -DDEADLINES=1 | agreement
REVOKE_CHECKS_COMMIT    | -DDEADLINES=1 | agreement
ROWS
    mutants staged <<'ROWS'
REVOKE_CHECKS_COMMIT    | -DDEADLINES=1 | agreement
RESET_AT_CREATE         | | slots
PUB_WAITS_FOR_GOT       | | slots
RED_WAITS_FOR_PUB       | | slots
GOT_WAITS_FOR_RED       | | slots
DATA_BEFORE_COUNTER     | | slots
FINISH_AFTER_RED        | -DDEATHS=1 | return
FINISH_CHECKS_REVOKED   | -DDEADLINES=1 | agreement
SUCCESS_AFTER_COMMIT    | -DDEADLINES=1 | agreement
WAIT_POLLS_ABORT        | -DDEATHS=1 | return
ROWS
    mutants one-shot staged ' -DONE_SHOT=1' <<'ROWS'
PUB_WAITS_FOR_GOT       | | slots
GOT_WAITS_FOR_PUB       | | slots
FINISH_AFTER_PUB        | -DDEATHS=1 | return
ROWS
    mutants window staged ' -DWINDOWS=2' <<'ROWS'
RED_WAITS_FOR_GOT       | | slots
RED_WAITS_FOR_PUB       | | slots
GOT_WAITS_FOR_RED       | -DIN_PLACE=1 | slots
SHOWN_BEFORE_COUNTER    | | slots
FINISH_CHECKS_REVOKED   | -DDEADLINES=1 | touch
ROWS
    mutants window-one-shot staged ' -DONE_SHOT=1 -DWINDOWS=1' <<'ROWS'
FINISH_AFTER_READS      | | touch
FINISH_KNOWS_WINDOWS    | -DD=2 | touch
SUCCESS_AFTER_COMMIT    | | touch
IN_PLACE_SHOWS_A_COPY   | -DIN_PLACE=1 | touch
ROWS
    mutants pull <<'ROWS'
REVOKE_CHECKS_COMMIT    | -DDEADLINES=1 | agreement
READ_AFTER_ALL_ARRIVED  | | touch
COUNT_AFTER_READ        | | touch
FINISH_CHECKS_REVOKED   | -DDEADLINES=1 | touch
SUCCESS_AFTER_COMMIT    | | touch
IN_PLACE_SHOWS_A_COPY   | | touch
NOTHING_READ_OF_THE_DEAD | -DDEATHS=1 | touch
WAIT_POLLS_ABORT        | -DDEATHS=1 | return
ROWS
    mutants pool <<'ROWS'
HALF_IS_THE_OWNERS      | | return
LAST_IS_FOR_BEGUN       | -DORDERED=1 | return
ROWS
    mutants direct <<'ROWS'
REVOKE_CHECKS_COMMIT    | -DDEADLINES=1 | agreement
RESET_AT_CREATE         | | return
TOUCH_AFTER_ALL_ARRIVED | | touch
CLAIM_BEFORE_TOUCH      | -DDEADLINES=1 | touch
CLAIM_CHECKS_REVOKED    | -DDEADLINES=1 | touch
REVOKER_DRAINS          | -DDEADLINES=1 | touch
OBSERVER_DRAINS         | -DDEADLINES=1 -DN=3 -DROUNDS=1 -DCOARSE=1 | touch
COUNT_AFTER_TOUCH       | | touch
ROWS
    mutants bell <<'ROWS'
STATE_BEFORE_SLEEPERS   | | return
ANNOUNCE_BEFORE_LOOK    | | return
LOOK_ONCE_MORE          | | return
BELL_BEFORE_LOOK        | | return
ANNOUNCED_IN_SLEEP      | | return
BELL_BEFORE_WAKE        | | return
WAKE_ALL                | | return
WATCH_RINGS             | -DDEATHS=1 | return
TAKE_BACK               | | leak
ROWS
    mutants ring <<'ROWS'
WHO_FINDS_FULL_RINGS    | | return
FENCE_BEFORE_SLEEPERS   | | return
FENCE_BEFORE_LAST_LOOK  | | return
ROWS
    mutants ring-rooted ring ' -DROOTED=1' <<'ROWS'
WHO_ARRIVES_RINGS       | | return
WHO_COMPLETES_RINGS     | | return
ROWS
    mutants lane <<'ROWS'
FENCE_BEFORE_SEAL       | -DDEADLINES=1 | agreement
ALL_THERE_READS_SEAL    | -DDEADLINES=1 | agreement
GIVING_UP_SEALS         | -DDEADLINES=1 | agreement
SEAL_BEFORE_LOOK        | -DDEADLINES=1 | agreement
SEAL_LOOKS_AGAIN        | -DDEADLINES=1 | agreement
DECIDED_ONCE            | -DDEADLINES=1 | agreement
SEAL_NAMES_ITS_CALL     | -DDEADLINES=1 -DD=1 | return
SEAL_AFTER_OWN_ARRIVAL  | -DDEADLINES=1 -DD=1 | agreement
SUCCESS_NEEDS_ALL       | | payload
RECORDS_ARE_COMPARED    | -DMISMATCH=1 | mismatch
FAILURE_ABORTS_COMM     | -DDEADLINES=1 | later
ENTRY_CHECKS_ABORT      | -DDEADLINES=1 | later
WAIT_POLLS_ABORT        | -DDEATHS=1 | return
WAIT_HAS_DEADLINE       | -DDEADLINES=1 -DABSENT=1 | return
WRITE_WAITS_FOR_ROOM    | -DD=1 | return
ROOM_ASKS_ALL           | -DD=1 | return
DONE_HAS_A_COUNTER      | -DOPEN=2 | return
DONE_AFTER_READ         | -DD=1 | payload
DONE_IS_A_PREFIX        | -DOPEN=2 | return
PAYLOAD_BEFORE_ARRIVE   | | success
LARGE_COMMITS_IN_CELL   | -DLARGE=1 -DDEADLINES=1 | agreement
LARGE_REVOKES_CELL      | -DLARGE=1 -DDEADLINES=1 | agreement
DIGEST_HAS_HISTORY      | -DALONE=1 -DLARGE=2 -DMISMATCH=1 -DOPEN=2 | mismatch
COMPARED_IN_CELL        | -DALONE=1 -DLARGE=2 -DMISMATCH=1 -DOPEN=2 | mismatch
LANE_BEFORE_CELL        | -DALONE=1 -DLARGE=2 -DMISMATCH=1 -DOPEN=2 | mismatch
WAIT_LOOKS_IN_LANE      | -DLARGE=1 -DMISMATCH=1 -DINSTEAD=4 -DN=3 -DOPS=2 | return
LARGE_IS_COMPLETED      | -DLARGE=1 -DOPEN=2 | return
COMPLETED_AT_THE_END    | -DALONE=1 -DLARGE=2 -DMISMATCH=1 -DOPEN=2 -DD=1 | mismatch
ROWS
    mutants lane-shown lane ' -DSHOWN=1' <<'ROWS'
COMPLETED_AT_THE_END    | -DOPEN=2 -DD=1 | payload
ROWS
    mutants rooted <<'ROWS'
SUCCESS_NEEDS_SOURCE    | | payload
RECORDS_ARE_COMPARED    | -DMISMATCH=1 | mismatch
WRITE_WAITS_FOR_ROOM    | | payload
ROOM_ASKS_ALL           | | payload
DONE_AFTER_READ         | | payload
PAYLOAD_BEFORE_ARRIVE   | | success
FAILURE_ABORTS_COMM     | -DDEADLINES=1 | later
ENTRY_CHECKS_ABORT      | -DDEADLINES=1 | later
WAIT_POLLS_ABORT        | -DDEATHS=1 | return
WAIT_HAS_DEADLINE       | -DDEADLINES=1 -DABSENT=1 | return
WHOLE_WAITS_FOR_ALL     | -DWHOLE=2 | payload
PART_WAITS_FOR_WHOLE    | -DWHOLE=2 | payload
ROWS
    mutants device <<'ROWS'
ENTRY_CHECKS_ERROR      | KINDS=2 STRANGER=1 DIRECT_ONLY=1 | touch
GIVING_UP_TAKES_CLAIM   | KINDS=2 DEADLINES=1 ABSENT=1 DIRECT_ONLY=1 | return
CLAIM_IS_LOOKED_AT      | KINDS=2 DEADLINES=1 DIRECT_ONLY=1 | touch
WHO_CAME_IS_WAITED_FOR  | KINDS=2 DEADLINES=1 DIRECT_ONLY=1 | touch
EXIT_AFTER_LAST_TOUCH   | KINDS=3 DEADLINES=1 DIRECT_ONLY=1 | touch
FAR_AHEAD_SETS_ERROR    | KINDS=2 STRANGER=1 DIRECT_ONLY=1 | touch
FAR_AHEAD_IS_SEEN       | KINDS=2 DEADLINES=1 | payload
MEETING_AFTER_TOUCH     | KINDS=3 DIRECT_ONLY=1 | touch
MEETING_AFTER_STAGING   | KINDS=2 | payload
ALL_GO_ONE_WAY          | KINDS=2 | return
RECORDS_ARE_COMPARED    | KINDS=2 MISMATCH=1 | mismatch
FAILED_SEND_NOTHING     | KINDS=1 STRANGER=1 | payload
TWO_SLOTS               | KINDS=1 | return
WAIT_POLLS_ABORT        | KINDS=1 DEATHS=1 | return
WAIT_HAS_DEADLINE       | KINDS=1 DEADLINES=1 ABSENT=1 | return
ROWS
    mutants mode <<'ROWS'
ONE_DECIDES_FOR_ALL     | | twice
ONE_THREAD_LOOKS        | | twice
THE_LAST_RESETS         | | twice
COUNTED_AFTER_TAKING    | | twice
ROWS
    mutants mode-repeatable mode ' TWICE=1' <<'ROWS'
ONE_DECIDES_FOR_ALL     | | left-out
ROWS
    mutants registrar <<'ROWS'
READY_WHEN_MAPPED       | | touch
STALE_IS_MARKED         | GRAPH=1 | touch
STALE_HAS_ITS_WORD      | GRAPH=1 | touch
STALE_STATES_ARE_MARKED | GRAPH=1 | touch
GENERATIONS_ARE_NEW     | GRAPH=1 OTHER=1 | touch
CLEARED_BEFORE_TOLD     | GRAPH=1 | touch
FREE_WHEN_ALL_KNOW      | | touch
ROWS
    mutants rounds <<'ROWS'
LOCKS_ARE_TRIED         | | return
ENTER_WHEN_ALL_READY    | | return
READY_HOLDS_LOCK        | | freed
READY_IS_FOLLOWED       | | return
LEAD_CANCELS_AT_END     | | return
ROWS
    mutants appoint <<'ROWS'
COUNTED_UNDER_LOCK      | | return
AFTER_THE_LAST          | | return
ONLY_ONE_AT_A_TIME      | | return
ALL_COME_FIRST          | DEADLINES=2 ABSENT=1 | return
LEAVING_LOOKS           | DEADLINES=2 | return
LEAVING_IS_ONE_STEP     | DEADLINES=2 | return
THE_LAST_RESETS         | | return
CALL_COMES_LAST         | | return
WAIT_HAS_DEADLINE       | DEADLINES=2 ABSENT=1 | return
WAIT_POLLS_OFF          | STRANGER=1 ABSENT=1 | return
ROWS
    mutants identity <<'ROWS'
COUNTED_IN_THE_WORLD    | | deadline
COUNTS_ARE_RENEWED      | RAISES=1 | deadline
NAMED_BY_PLACE          | | deadline
MODULE_IS_IN_THE_NAME   | THREADS=1 WORLDS=1 | reason
COPIES_ARE_NAMED        | | other-call
COPIES_ARE_REFUSED      | COPIES=1 | other-call
DIGEST_IS_COMPARED      | LACKS=1 | other-call
DIGEST_OF_THE_WHOLE     | LACKS=1 | other-call
RUNS_ARE_IN_ORDER       | THREADS=2 WORLDS=1 | swapped
RUN_AND_COUNT_ARE_ONE   | THREADS=2 WORLDS=1 | swapped
WAIT_LOOKS_AT_CALLS     | LACKS=1 | deadline
WAIT_LOOKS_AT_THE_GONE  | RAISES=1 | deadline
GRAPH_IS_COMPARED       | GRAPH=1 EXECUTIONS=1 | graph
FRAMES_END_WITH_A_WORLD | GRAPH=1 EXECUTIONS=1 | graph
NUMBER_IS_THE_STORES    | MISSES=1 | deadline
DEATH_ENDS_THE_ROUND    | DEATHS=1 EXECUTIONS=1 | deadline
ROWS
    mutants identity-death identity ' DEATHS=1 EXECUTIONS=1' <<'ROWS'
COUNTS_ARE_RENEWED      | | deadline
NUMBER_IS_THE_STORES    | | deadline
ROWS
    mutants tags <<'ROWS'
ORDERED_WITHIN_A_TAG    | | other-call
COUNTED_BY_TAG          | | other-call
COMPARED_ALONE          | | reason
TRANSPOSES_HAVE_THEIR_TAG | | reason
ROWS
}

# Minutes, all together.
soak_rows() {
    cat <<'ROWS'
device-large-late-any    | device | KINDS=2 DEADLINES=2 ABSENT=1 |
device-large-death       | device | KINDS=2 DEATHS=1 |
device-large-revoked-any | device | KINDS=2 STRANGER=1 |
device-ragged-late-any   | device | KINDS=3 DEADLINES=2 ABSENT=1 |
device-ragged-death      | device | KINDS=3 DEATHS=1 |
device-person-death      | device | KINDS=4 DEATHS=1 |
device-person-revoked    | device | KINDS=4 STRANGER=1 |
device-mixed             | device | |
device-mixed-late        | device | DEADLINES=1 ABSENT=1 |
device-mixed-revoked     | device | STRANGER=1 |
device-small-three       | device | -DN=3 KINDS=1 DEADLINES=1 ABSENT=1 |
device-small-three-calls | device | -DCALLS=3 KINDS=1 DEADLINES=2 |
device-large-three       | device | -DN=3 -DCALLS=1 KINDS=2 DEADLINES=1 DIRECT_ONLY=1 |
mode-both                | mode   | BOTH=1 |
mode-more-pieces         | mode   | -DPIECES=8 |
registrar-remaps         | registrar | GRAPH=1 REMAPS=2 |
registrar-remaps-other   | registrar | GRAPH=1 OTHER=1 REMAPS=2 |
identity-lacks-worlds    | identity | LACKS=1 WORLDS=3 |
identity-raises-worlds   | identity | RAISES=1 WORLDS=3 |
identity-death-worlds    | identity | DEATHS=1 WORLDS=3 EXECUTIONS=1 |
identity-three-threads   | identity | -DN=3 THREADS=2 WORLDS=1 EXECUTIONS=1 |
identity-death-lacks     | identity | DEATHS=1 LACKS=1 EXECUTIONS=1 |
identity-three           | identity | -DN=3 |
identity-three-lacks     | identity | -DN=3 LACKS=1 EXECUTIONS=1 |
identity-three-raises    | identity | -DN=3 RAISES=1 EXECUTIONS=1 |
identity-three-misses    | identity | -DN=3 MISSES=1 WORLDS=3 EXECUTIONS=1 |
ROWS
}

mutants() { # name [model options]
    while IFS='|' read -r rule options breaks; do
        rule=${rule%% *}
        number=$(awk -v rule="$rule" '$1 == "#define" && $2 == rule { print $3 }' \
            "$models/${2:-$1}.pml" "$models/cell.pml")
        echo "$1-without-$rule | ${2:-$1} | WITHOUT=${number%%[!0-9]*}$3$options | $breaks"
    done
}

# What pan says when a property is broken.
message_of() {
    case $1 in
    agreement) echo 'assertion violated.*g_result' ;;
    success) echo 'assertion violated.*state(\[s\])?==8' ;;
    payload) echo 'assertion violated.*(g_op|payload|place|g_wrong)' ;;
    mismatch) echo 'assertion violated.*(why==3|!=s|record|mismatch)' ;;
    later) echo 'assertion violated.*g_late' ;;
    freed) echo 'assertion violated.*(used|taken|g_inside|left)' ;;
    slots) echo 'assertion violated.*(slot|slice)' ;;
    touch) echo 'assertion violated.*(buffer|g_wrong|imported)' ;;
    twice) echo 'assertion violated.*wrote.*==\(call-1' ;;
    left-out) echo 'assertion violated.*wrote.*>=call' ;;
    other-call) echo 'assertion violated.*(wrong|other)' ;;
    swapped) echo 'assertion violated.*swapped' ;;
    graph) echo 'assertion violated.*captured' ;;
    reason) echo 'assertion violated.*(trouble|record\[cell\])' ;;
    deadline) echo 'assertion violated.*at_the_deadline' ;;
    leak) echo 'assertion violated.*sleepers' ;;
    return) echo 'invalid end state' ;;
    esac
}

judge() { # name breaks log
    if [ -n "$2" ]; then
        if grep -qE "^pan:1: $(message_of "$2")" "$3"; then
            echo "PASS $1 (breaks '$2', as it must)"
        else
            echo "FAIL $1 (did not break '$2': $(grep -E '^pan:1|[Ee]rror' "$3" | tr '\n' ' '))"
            return 1
        fi
    elif grep -q 'errors: 0$' "$3" && ! grep -qE '^pan:1|^error|not completed' "$3"; then
        echo "PASS $1 (states $(awk '/states, stored/ { print $1 }' "$3"))"
    else
        echo "FAIL $1 ($(grep -E '^pan:1|[Ee]rror|not completed' "$3" | head -n 3 | tr '\n' ' '))"
        return 1
    fi
}

# What a row's options are for, and where its checker is. Partial order reduction does not look at what `unless` may
# cut off, so it is off where ranks die.
place_of() { # model options
    words='' settings='' reduce=''
    for option in $2; do
        case $option in
        -D*) words="$words $option" ;;
        *) settings="$settings $option" ;;
        esac
    done
    case $2 in *DEATHS*) reduce=-DNOREDUCE ;; esac
    place=$work/$1$(echo "$words$reduce" | tr ' ' '_')
}

# Compiles what place_of has said, unless another row has.
build() { # model
    mkdir -p "$place" && cd "$place" || exit 1
    [ -f pan ] && return
    cp "$models"/*.pml .
    # shellcheck disable=SC2086 # several words
    spin -a $words "$1.pml" >log 2>&1 &&
        $compiler -w $reduce -DSAFETY -DMEMLIM=$memory -o pan pan.c >>log 2>&1
    rm -f pan.[bchmpt]
}

# One row.
check() { # row
    IFS='|' read -r name model options breaks <<ROW
$(echo "$1" | sed 's/ *| */|/g; s/ *$//')
ROW
    place_of "$model" "$options"
    (flock 9 && build "$model") 9>>"$place.lock"
    mkdir "$work/$name.run" && cd "$work/$name.run" || exit 1
    # shellcheck disable=SC2086 # several words
    {
        cat "$place/log"
        env $settings timeout 200 "$place/pan" -m20000 -w$table_bits
    } >log 2>&1
    judge "$name" "$breaks" log
    verdict=$?
    if [ "$only" = 1 ] && ls ./*.trail >/dev/null 2>&1; then
        # shellcheck disable=SC2086
        env $settings timeout 200 "$place/pan" -r
    fi
    cd "$work" && rm -rf "$name.run"
    return $verdict
}

models=$(cd "$(dirname "$0")" && pwd)
# Compiling takes longer than checking, and clang half as long as gcc.
compiler=$(command -v clang || echo cc)
memory=1024 table_bits=20
[ "$SOAK" = 1 ] && memory=8192 table_bits=24
if [ "$1" = --row ]; then
    work=$3 only=$4
    check "$2"
    exit
fi
for tool in spin cc timeout xargs flock; do
    if ! command -v $tool >/dev/null; then
        echo "SKIP model: $tool is not installed"
        exit 77
    fi
done
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
rows=$(table | grep -E "^${1:-.*} ")
if [ -z "$rows" ]; then
    echo "FAIL $1 (no such model)"
    exit 1
fi
echo "$rows" | tr '\n' '\0' |
    xargs -0 -P "${JOBS:-2}" -I ROW sh "$models/run.sh" --row ROW "$work" "$(echo "$rows" | wc -l)" || exit 1
