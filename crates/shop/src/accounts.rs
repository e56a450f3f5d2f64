//! Signing up, logging in and out, refreshing, and what users tell about themselves.

use mobimir_core::{
    cart::{self, Owner},
    id::{ChangeId, SessionId, UserId},
    invariant::Invariant,
    page::Page,
    policy::ReadOperation,
    ports::StoreError,
    reading,
    secret::{AccessToken, RefreshSecret},
    session::{
        DEVICE_CHARS_MAX, Holder, RefreshToken, RefreshUse, Session, SessionPosition, SessionState,
        USER_AGENT_CHARS_MAX,
    },
    time::{Timestamp, Version},
    user::{self, Email, Profile, User, UserError},
    zone::Zone,
};
use thiserror::Error;

use crate::{
    Caller, ClientInfo, Shop,
    faults::{Planted, Step, Stopped},
    passwords::PasswordError,
};

/// A session as its holder gets it.
pub struct LoggedIn {
    pub session_id: SessionId,
    pub user_id: Option<UserId>,
    pub token: String,
    pub refresh_token: Option<String>,
    pub expires_at: Timestamp,
}

/// What a user changes in the profile; what is `None` stays, `Some(None)` is taken out.
#[derive(Clone, Debug, Default)]
pub struct ProfileEdit {
    pub name: Option<Option<String>>,
    pub phone: Option<Option<String>>,
    pub geo_zone: Option<Option<Zone>>,
    pub shipping_address: Option<Option<String>>,
}

#[derive(Debug, Error)]
pub enum RegisterError {
    #[error(transparent)]
    Invalid(#[from] UserError),
    #[error("this email belongs to a user already")]
    EmailTaken,
    #[error("{0}")]
    BadProfile(String),
    #[error(transparent)]
    Password(#[from] PasswordError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[derive(Debug, Error)]
pub enum LoginError {
    #[error("no user has this email and password")]
    BadCredentials,
    #[error("too many failed logins, wait {retry_after_s} s")]
    TooMany { retry_after_s: u64 },
    #[error(transparent)]
    Password(#[from] PasswordError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

#[derive(Debug, Error)]
pub enum RefreshError {
    #[error("this refresh token is unknown or has expired")]
    Unknown,
    #[error("this refresh token was used before, so its session has been ended")]
    Used,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// How often a lost race for a session record is tried again.
const SESSION_RETRIES_MAX: usize = 16;
/// How often a guest's cart is carried over in the end, when something keeps arriving.
const LAST_LOOKS_MAX: usize = 3;

impl Shop {
    pub async fn start_guest_session(&self, client: ClientInfo) -> Result<LoggedIn, StoreError> {
        let now = self.now();
        let expires_at = now.plus_ms(self.settings().guest_session_ttl_ms);
        let (session, token) = self.new_session(Holder::Guest, client, now, expires_at);
        let answer = logged_in(&session, &token, None);
        self.stores().sessions.insert(session, None).await?;
        Ok(answer)
    }

    pub async fn register(&self, email: &str, password: &str) -> Result<UserId, RegisterError> {
        let email = Email::parse(email)?;
        user::check_password(password)?;
        if self.stores().users.by_email(&email).await?.is_some() {
            return Err(RegisterError::EmailTaken);
        }
        let password_hash = self.inner.passwords.hash(password.to_owned()).await?;
        let now = self.now();
        let user = User {
            id: UserId(self.fresh_id()),
            email,
            password_hash,
            profile: Profile::default(),
            created_at: now,
            updated_at: now,
            version: Version::default().next(now),
        };
        let user_id = user.id;
        if self.stores().users.insert(user).await? { Ok(user_id) } else { Err(RegisterError::EmailTaken) }
    }

    pub async fn user(&self, id: UserId) -> Result<Option<User>, StoreError> {
        reading::of(ReadOperation::UserProfile, self.stores().users.get(id)).await
    }

    pub async fn edit_profile(&self, id: UserId, edit: ProfileEdit) -> Result<Option<User>, RegisterError> {
        check_profile(&edit)?;
        loop {
            let Some(stored) = self.stores().users.get(id).await? else { return Ok(None) };
            let now = self.now();
            let mut user = stored.clone();
            user.updated_at = now;
            user.version = stored.version.next(now);
            let profile = &mut user.profile;
            if let Some(name) = edit.name.clone() {
                profile.name = name;
            }
            if let Some(phone) = edit.phone.clone() {
                profile.phone = phone;
            }
            if let Some(zone) = edit.geo_zone {
                profile.geo_zone = zone;
            }
            if let Some(address) = edit.shipping_address.clone() {
                profile.shipping_address = address;
            }
            if self.stores().users.update(user.clone(), stored.version).await? {
                return Ok(Some(user));
            }
        }
    }

    /// Logs a user in. The cart of the guest, if one comes along and is still open, becomes the user's.
    pub async fn log_in(
        &self,
        email: &str,
        password: &str,
        guest: Option<Caller>,
        client: ClientInfo,
    ) -> Result<LoggedIn, LoginError> {
        let Ok(email) = Email::parse(email) else { return Err(LoginError::BadCredentials) };
        let attempt = self
            .inner
            .logins
            .begin(email.as_str(), client.ip_address, self.now())
            .await
            .map_err(|refused| LoginError::TooMany { retry_after_s: refused.retry_after_s })?;
        let user = self.stores().users.by_email(&email).await?;
        let hash = user.as_ref().map(|user| user.password_hash.clone());
        let matches = self.inner.passwords.verify(password.to_owned(), hash).await?;
        let Some(user) = user.filter(|_| matches) else {
            attempt.failed();
            return Err(LoginError::BadCredentials);
        };
        drop(attempt);

        let now = self.now();
        let expires_at = now.plus_ms(self.settings().session_ttl_ms);
        let (session, token) = self.new_session(Holder::User(user.id), client, now, expires_at);
        let secret = RefreshSecret::generate(&*self.inner.environment.entropy);
        let refresh = RefreshToken { hash: secret.hash(), session: session.id, expires_at };
        let answer = logged_in(&session, &token, Some(&secret));
        self.stores().sessions.insert(session, Some(refresh)).await?;
        if let Some(guest) = guest {
            self.merge_guest(&guest, user.id).await?;
        }
        Ok(answer)
    }

    /// A new pair of tokens for an old refresh token. SES-2: it works once, and a second time ends the session.
    pub async fn refresh(&self, token: &str) -> Result<LoggedIn, RefreshError> {
        let secret = RefreshSecret::decode(token).ok_or(RefreshError::Unknown)?;
        let now = self.now();
        let session_id = match self.stores().sessions.use_refresh(secret.hash(), now).await? {
            RefreshUse::First(session) => session,
            RefreshUse::Again(_) if self.plants(Planted::ReusedTokenEndsNothing) => {
                return Err(RefreshError::Used);
            }
            RefreshUse::Again(session) => {
                self.end_session(session).await?;
                // Read where it was ended: another data centre may not have heard of it yet, and answers when that one
                // is lost right now. What cannot be read says nothing.
                if let Ok(stored) = self.stores().sessions.get_decided(session, now).await {
                    let ended = stored.is_none_or(|session| !session.is_live(now));
                    self.inner.invariants.check(Invariant::Ses2, ended);
                }
                return Err(RefreshError::Used);
            }
            RefreshUse::Unknown => return Err(RefreshError::Unknown),
        };
        for _ in 0..SESSION_RETRIES_MAX {
            let stored = self.stores().sessions.get(session_id, now).await?;
            let Some(stored) = stored.filter(|session| session.is_live(now)) else {
                return Err(RefreshError::Unknown);
            };
            let token = AccessToken::generate(session_id, &*self.inner.environment.entropy);
            let next = RefreshSecret::generate(&*self.inner.environment.entropy);
            let session = Session {
                token_hash: token.hash(),
                last_active: now,
                expires_at: now.plus_ms(self.settings().session_ttl_ms),
                version: stored.version.next(now),
                ..stored.clone()
            };
            let refresh =
                RefreshToken { hash: next.hash(), session: session_id, expires_at: session.expires_at };
            let answer = logged_in(&session, &token, Some(&next));
            if self.update_session(session, stored.version, Some(refresh)).await? {
                return Ok(answer);
            }
        }
        Err(lost_race().into())
    }

    pub async fn log_out(&self, caller: &Caller) -> Result<(), StoreError> {
        self.end_session(caller.session.id).await
    }

    pub async fn sessions_of(
        &self,
        user: UserId,
        after: Option<SessionPosition>,
        limit: usize,
    ) -> Result<Page<Session, SessionPosition>, StoreError> {
        self.stores().sessions.by_user(user, after, limit, self.now()).await
    }

    fn new_session(
        &self,
        holder: Holder,
        client: ClientInfo,
        now: Timestamp,
        expires_at: Timestamp,
    ) -> (Session, AccessToken) {
        let id = SessionId(self.fresh_id());
        let token = AccessToken::generate(id, &*self.inner.environment.entropy);
        let cut = |text: String, max: usize| text.chars().take(max).collect::<String>();
        let session = Session {
            id,
            holder,
            token_hash: token.hash(),
            state: SessionState::Live,
            ip_address: client.ip_address,
            user_agent: client.user_agent.map(|text| cut(text, USER_AGENT_CHARS_MAX)),
            device: client.device.map(|text| cut(text, DEVICE_CHARS_MAX)),
            created_at: now,
            last_active: now,
            expires_at,
            version: Version::default().next(now),
        };
        (session, token)
    }

    async fn end_session(&self, id: SessionId) -> Result<(), StoreError> {
        let at = self.now();
        self.move_session(id, |session| {
            (session.state == SessionState::Live).then_some(SessionState::Revoked { at })
        })
        .await?;
        Ok(())
    }

    /// Moves a session's state by the rule; says whether it was moved by this call.
    async fn move_session(
        &self,
        id: SessionId,
        rule: impl Fn(&Session) -> Option<SessionState>,
    ) -> Result<bool, StoreError> {
        for _ in 0..SESSION_RETRIES_MAX {
            let now = self.now();
            let Some(stored) = self.stores().sessions.get(id, now).await? else { return Ok(false) };
            let Some(state) = rule(&stored) else { return Ok(false) };
            let session = Session { state, version: stored.version.next(now), ..stored.clone() };
            if self.update_session(session, stored.version, None).await? {
                return Ok(true);
            }
        }
        Err(lost_race())
    }

    /// CRT-2: closes the guest's session to changes, then moves the cart. The reconciler looks once more, when no
    /// request that began before can still be running, and finishes what a crash left.
    async fn merge_guest(&self, guest: &Caller, user: UserId) -> Result<(), LoginError> {
        if guest.session.holder != Holder::Guest {
            return Ok(());
        }
        let guest_id = guest.session.id;
        let at = self.store_now();
        if self.plants(Planted::GuestKeptOpen) {
            return Ok(self.copy_guest_cart(guest_id, user, at).await?);
        }
        let closed = self
            .move_session(guest_id, |session| {
                (session.state == SessionState::Live).then_some(SessionState::Closed {
                    at,
                    into: user,
                    merged: false,
                })
            })
            .await?;
        if closed {
            self.inner.faults.reached(Step::GuestClosed).await?;
            self.copy_guest_cart(guest_id, user, at).await?;
            self.inner.faults.reached(Step::CartMerged).await?;
        }
        Ok(())
    }

    /// CRT-2: whoever changed a guest's cart so late that the last check of its merge may have been before
    /// takes the change along. An instance that stood still does not know how late it is but by its clocks.
    pub(crate) async fn follow_merge(&self, caller: &Caller) -> Result<(), StoreError> {
        let took_ms = self.moment().since(caller.known_at);
        if caller.session.holder != Holder::Guest
            || took_ms <= self.settings().request_ms_max
            || self.plants(Planted::LateGuestNotFollowed)
        {
            return Ok(());
        }
        let stored = self.stores().sessions.get_decided(caller.session.id, self.now()).await?;
        match stored.map(|session| session.state) {
            Some(SessionState::Closed { at, into, .. }) => {
                self.copy_guest_cart(caller.session.id, into, at).await
            }
            _ => Ok(()),
        }
    }

    async fn copy_guest_cart(
        &self,
        guest: SessionId,
        user: UserId,
        closed_at: Timestamp,
    ) -> Result<(), StoreError> {
        let now = self.now();
        let Some(stored) = self.stores().carts.read(Owner::Guest(guest), now).await? else { return Ok(()) };
        let mut changes = cart::for_merge(&stored.changes, closed_at);
        if self.plants(Planted::MergeRenamesChanges) {
            changes.iter_mut().for_each(|change| change.id = ChangeId(self.fresh_id()));
        }
        if changes.is_empty() {
            return Ok(());
        }
        self.stores().carts.append(Owner::User(user), changes, self.user_cart_expiry(now), now).await
    }

    /// CRT-2: whatever the guest's cart is made of is known in the user's.
    async fn is_merged(&self, guest: SessionId, user: UserId) -> Result<bool, StoreError> {
        let now = self.now();
        let carts = &self.stores().carts;
        let of_guest =
            carts.read(Owner::Guest(guest), now).await?.map(|cart| cart.changes).unwrap_or_default();
        let of_user = carts.read(Owner::User(user), now).await?.map(|cart| cart.changes).unwrap_or_default();
        let brought = cart::for_merge(&of_guest, now);
        Ok(cart::has_arrived(&of_user, &brought))
    }

    /// The last look at a closed guest's cart. What a store has been given long ago, and has just come to know, goes along.
    pub(crate) async fn finish_merge(&self, guest: &Session) -> Result<(), StoreError> {
        let SessionState::Closed { at, into, merged: false } = guest.state else { return Ok(()) };
        let mut is_merged = false;
        for _ in 0..LAST_LOOKS_MAX {
            self.copy_guest_cart(guest.id, into, at).await?;
            is_merged = self.is_merged(guest.id, into).await?;
            if is_merged {
                break;
            }
        }
        if !self.inner.invariants.check(Invariant::Crt2, is_merged) {
            tracing::error!(guest = %guest.id, user = %into, "CRT-2 is broken: a change of the guest's cart is missing from the user's");
        }
        self.move_session(guest.id, |session| match session.state {
            SessionState::Closed { at, into, merged: false } => {
                Some(SessionState::Closed { at, into, merged: true })
            }
            _ => None,
        })
        .await?;
        Ok(())
    }
}

fn logged_in(session: &Session, token: &AccessToken, refresh: Option<&RefreshSecret>) -> LoggedIn {
    LoggedIn {
        session_id: session.id,
        user_id: session.user(),
        token: token.encode(),
        refresh_token: refresh.map(RefreshSecret::encode),
        expires_at: session.expires_at,
    }
}

fn check_profile(edit: &ProfileEdit) -> Result<(), RegisterError> {
    let fits = |text: &Option<Option<String>>, max: usize| {
        text.iter().flatten().all(|text| text.chars().count() <= max && !text.chars().any(|c| c == '\0'))
    };
    for (field, text, max) in [
        ("name", &edit.name, user::PROFILE_TEXT_CHARS_MAX),
        ("phone", &edit.phone, user::PROFILE_TEXT_CHARS_MAX),
        ("shipping_address", &edit.shipping_address, user::PROFILE_ADDRESS_CHARS_MAX),
    ] {
        if !fits(text, max) {
            return Err(RegisterError::BadProfile(format!("{field}: expected at most {max} characters")));
        }
    }
    Ok(())
}

fn lost_race() -> StoreError {
    StoreError::Unavailable { what: "the session is being changed by too many at once".into(), source: None }
}
