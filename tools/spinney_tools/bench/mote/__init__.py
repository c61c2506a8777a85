"""The benches of motes: Table 3.1 of the state-filter thesis run again, and what a mote's battery is used for."""
