"""Adds up JUnit files (GoogleTest's and pytest's) and prints one line: N passed, N failed, N skipped."""

import pathlib
import sys
import xml.etree.ElementTree as ElementTree


def main(folders):
    passed = failed = skipped = 0
    for folder in folders:
        files = sorted(pathlib.Path(folder).glob("*.xml"))
        if not files:
            print(f"{folder}: no test results")
            failed += 1
        for file in files:
            for case in ElementTree.parse(file).getroot().iter("testcase"):
                name = f"{case.get('classname')}.{case.get('name')}"
                if case.find("failure") is not None or case.find("error") is not None:
                    failed += 1
                    print(f"FAILED {folder} {name}")
                elif case.find("skipped") is not None or case.get("status") == "notrun" or case.get("result") == "skipped":
                    skipped += 1
                    print(f"SKIPPED {folder} {name}")
                else:
                    passed += 1
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
