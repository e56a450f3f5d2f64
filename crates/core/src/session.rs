//! Sessions of guests and users, and the families of refresh tokens that keep a user's session alive.
//!
//! A session is its own family: all refresh tokens that were ever given out for it belong together, and a token
//! that comes a second time ends the session (SES-2).

use crate::{
    id::{SessionId, UserId},
    secret::SecretHash,
    time::{Timestamp, Version},
};

pub const USER_AGENT_CHARS_MAX: usize = 256;
pub const DEVICE_CHARS_MAX: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    pub id: SessionId,
    pub holder: Holder,
    /// Of the one access token that works now.
    pub token_hash: SecretHash,
    pub state: SessionState,
    pub ip_address: Option<std::net::IpAddr>,
    pub user_agent: Option<String>,
    pub device: Option<String>,
    pub created_at: Timestamp,
    pub last_active: Timestamp,
    pub expires_at: Timestamp,
    pub version: Version,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Holder {
    Guest,
    User(UserId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionState {
    Live,
    /// Logged out, or ended because a refresh token came twice.
    Revoked {
        at: Timestamp,
    },
    /// A guest who logged in. The cart moves to `into`; until `merged`, somebody still has to look once more.
    Closed {
        at: Timestamp,
        into: UserId,
        merged: bool,
    },
}

/// A refresh token as the store knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefreshToken {
    pub hash: SecretHash,
    pub session: SessionId,
    pub expires_at: Timestamp,
}

/// What became of presenting a refresh token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefreshUse {
    /// The first time: it counts, and never will again.
    First(SessionId),
    Again(SessionId),
    Unknown,
}

/// Where a page of somebody's sessions ends. Newest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SessionPosition {
    pub created_at: Timestamp,
    pub session_id: SessionId,
}

impl Session {
    /// SES-1: what has expired, was revoked or closed is refused.
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.state == SessionState::Live && now < self.expires_at
    }

    pub fn user(&self) -> Option<UserId> {
        match self.holder {
            Holder::User(user) => Some(user),
            Holder::Guest => None,
        }
    }

    pub fn position(&self) -> SessionPosition {
        SessionPosition { created_at: self.created_at, session_id: self.id }
    }
}

impl SessionPosition {
    pub fn key(&self) -> (std::cmp::Reverse<Timestamp>, SessionId) {
        (std::cmp::Reverse(self.created_at), self.session_id)
    }
}
