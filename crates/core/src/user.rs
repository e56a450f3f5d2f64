//! Users and what they tell about themselves.

use thiserror::Error;

use crate::{
    id::UserId,
    time::{Timestamp, Version},
    zone::Zone,
};

pub const EMAIL_BYTES_MAX: usize = 254;
pub const PASSWORD_CHARS_MIN: usize = 8;
pub const PASSWORD_CHARS_MAX: usize = 128;
pub const PROFILE_TEXT_CHARS_MAX: usize = 200;
pub const PROFILE_ADDRESS_CHARS_MAX: usize = 1_000;

#[derive(Clone, PartialEq, Eq)]
pub struct User {
    pub id: UserId,
    pub email: Email,
    /// In the PHC string format, with its own salt and parameters. Empty when nobody can log in (an imported user).
    pub password_hash: String,
    pub profile: Profile,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub version: Version,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    pub name: Option<String>,
    pub phone: Option<String>,
    pub geo_zone: Option<Zone>,
    pub shipping_address: Option<String>,
}

/// An address, in lower case and without space around it. Unique among users.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Email(String);

#[derive(Debug, Error, PartialEq, Eq)]
pub enum UserError {
    #[error("expected an email address like anna@example.ru, of at most {EMAIL_BYTES_MAX} bytes")]
    BadEmail,
    #[error("expected a password of {PASSWORD_CHARS_MIN} to {PASSWORD_CHARS_MAX} characters")]
    BadPassword,
}

impl Email {
    pub fn parse(text: &str) -> Result<Self, UserError> {
        let email = text.trim().to_lowercase();
        let well_formed = email.len() <= EMAIL_BYTES_MAX
            && !email.chars().any(|c| c.is_whitespace() || c.is_control())
            && email.split_once('@').is_some_and(|(who, host)| {
                !who.is_empty()
                    && !host.contains('@')
                    && host.split('.').all(|label| !label.is_empty())
                    && host.contains('.')
            });
        if well_formed { Ok(Self(email)) } else { Err(UserError::BadEmail) }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for Email {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::fmt::Debug for User {
    /// Without the password's hash.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("User").field("id", &self.id).field("email", &self.email).finish_non_exhaustive()
    }
}

pub fn check_password(password: &str) -> Result<(), UserError> {
    let chars = password.chars().count();
    if (PASSWORD_CHARS_MIN..=PASSWORD_CHARS_MAX).contains(&chars) {
        Ok(())
    } else {
        Err(UserError::BadPassword)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_email_is_one_address() {
        assert_eq!(Email::parse(" Anna@Example.RU ").unwrap().as_str(), "anna@example.ru");
        assert!(Email::parse("анна@почта.рф").is_ok());
        for bad in [
            "",
            "anna",
            "@example.ru",
            "anna@",
            "anna@example",
            "a b@example.ru",
            "a@b@c.ru",
            "anna@.ru",
            "anna@example..ru",
        ] {
            assert!(Email::parse(bad).is_err(), "{bad}");
        }
    }
}
