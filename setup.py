"""The part of the build that pyproject.toml cannot say: a wheel carries the papers, for `fedrepro init`."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class Build(build_py):
    """The packages, and in a wheel the specs of the papers as fedrepro/project/."""

    def run(self):
        super().run()
        if not self.editable_mode:
            for path in [Path("params.yaml"), *filter(Path.is_file, Path("papers").glob("*/*"))]:
                place = Path(self.build_lib, "fedrepro/project", path)
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, place)


setup(cmdclass={"build_py": Build})
