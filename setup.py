"""What pyproject.toml cannot say: migrations/ stands beside the service in the tree and inside it in the package."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["service", "service.*"]), "service.migrations", "service.migrations.versions"],
    package_dir={"service.migrations": "migrations", "service.migrations.versions": "migrations/versions"},
)
