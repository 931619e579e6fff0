"""Made from the .proto files by `make proto`; not edited by hand."""
