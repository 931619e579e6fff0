"""Made from the .proto file by `make proto`; not edited by hand."""
