"""Runs the mote. What it cannot go on after is recorded, and the board starts anew."""

import machine
import spinney_boot


def main() -> None:
    files = spinney_boot.Files(spinney_boot.STATE_FOLDER)
    watchdog = spinney_boot.watchdog(machine)
    loaded = False
    try:
        from spinney_mote import mote

        loaded = True
        mote.run(machine, watchdog, files)
    except KeyboardInterrupt:
        spinney_boot.hold(machine, watchdog)
        raise
    except Exception as error:  # noqa: BLE001  # whatever it is, it must be readable over the air
        spinney_boot.record_crash(error, files)
        if not loaded:
            spinney_boot.distrust(files, spinney_boot.running)
        machine.reset()


main()
