# Cases of the scripts that test the program from outside, and how many passed. This file is sourced in the root of the checkout, not run.

passed=0
failed=0
# case_ NAME COMMAND...: the command must succeed.
case_() {
    local name=$1
    shift
    if "$@" >case.log 2>&1; then
        passed=$((passed + 1))
        echo "ok    $name"
    else
        failed=$((failed + 1))
        echo "FAIL  $name"
        sed 's/^/      /' case.log
    fi
}
# says PATTERN COMMAND...: the command must succeed and print the pattern.
says() {
    local pattern=$1
    shift
    "$@" >says.log 2>&1 && grep -q -- "$pattern" says.log || { cat says.log; return 1; }
}
# refuses PATTERN COMMAND...: the command must fail and print the pattern.
refuses() {
    local pattern=$1
    shift
    ! "$@" >says.log 2>&1 && grep -q -- "$pattern" says.log || { cat says.log; return 1; }
}
