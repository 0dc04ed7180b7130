//! What the tests of several modules share.
