//! The policies that come with the program.

use super::{Policy, PolicyError};

/// One of the files in `policies/`.
#[derive(Clone, Copy, Debug)]
pub struct BuiltIn {
    pub name: &'static str,
    pub file: &'static str,
    pub text: &'static str,
}

macro_rules! built_in {
    ($($name:literal),* $(,)?) => {
        &[$(BuiltIn {
            name: $name,
            file: concat!("policies/", $name, ".toml"),
            text: include_str!(concat!("../../../../policies/", $name, ".toml")),
        }),*]
    };
}

pub const BUILT_IN: &[BuiltIn] =
    built_in!["embedded", "default", "history-only", "status-log", "bucketed", "quorum"];

impl BuiltIn {
    pub fn policy(&self) -> Result<Policy, PolicyError> {
        Policy::parse(self.text, self.file)
    }
}

impl Policy {
    /// The built-in policy of that name.
    pub fn built_in(name: &str) -> Option<Result<Policy, PolicyError>> {
        BUILT_IN.iter().find(|built_in| built_in.name == name).map(BuiltIn::policy)
    }
}
