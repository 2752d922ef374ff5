"""An answer of the console other than 200."""

from tailrace.contract.driver import Problem


class ApiRefusal(Exception):
    def __init__(self, code: int, name: str, message: str, fix: str = "") -> None:
        super().__init__(message)
        self.code, self.problem = code, Problem(name=name, message=message, fix=fix)
