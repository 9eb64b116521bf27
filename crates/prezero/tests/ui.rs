//! What safe code cannot do with a zone, because it does not compile. `TRYBUILD=overwrite` writes the expected
//! messages anew, for a new compiler.

#[test]
fn misuse_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
