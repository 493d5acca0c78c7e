"""Many runs: what is asked for, what is planned, what must be found first."""
