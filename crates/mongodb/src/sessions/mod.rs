//! Sessions: a document each, changed on its version only; refresh tokens in documents of their own, by hash.
//!
//! A token has to be found by its hash in one shard, and outlives the changes of its session, so it is no part of it. Two
//! documents without a transaction: the token that a change gives out is written after that change was decided, because a
//! token of a change that did not happen must not work. If it cannot be written the outcome is unknown; the user who
//! never got it logs in again.
//!
//! `unmerged_since` stands only in sessions of guests whose cart may have to be merged. An index holds those alone.

mod document;
mod moving;

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future;
use mobimir_core::{
    id::{SessionId, UserId},
    page::Page,
    policy::Entity,
    ports::{Period, SessionStore, StoreError, StoreResult},
    secret::SecretHash,
    session::{RefreshToken, RefreshUse, Session, SessionPosition},
    time::{Timestamp, Version},
};
use mongodb::{
    Collection,
    bson::{Document, doc, serialize_to_document},
    options::{FindOptions, ReturnDocument},
};

use self::document::{LIVE, SessionDoc, TokenDoc, hash};
use crate::{
    deployment::Deployment,
    leaves::{date, literal, next_version, number, uuid},
    link::{Link, damaged},
    moving::{Tracking, UNMIRRORED},
    paging::{by_age, newest_first, page_of},
};

pub struct MongoSessions {
    link: Link,
    sessions: Collection<SessionDoc>,
    tokens: Collection<TokenDoc>,
    tracking: Tracking,
}

impl MongoSessions {
    pub fn new(deployment: Arc<Deployment>) -> Self {
        let link = Link::new(deployment, Entity::Sessions);
        let (sessions, tokens) = (link.collection("sessions"), link.collection("refresh_tokens"));
        Self { sessions, tokens, link, tracking: Tracking::Off }
    }

    async fn give(&self, token: Option<RefreshToken>, with: &Session) -> StoreResult<()> {
        if let Some(token) = token {
            let token = TokenDoc::of(token, with).marked(self.tracking.since());
            self.link.insert_one("give_token", &self.tokens, &token).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl SessionStore for MongoSessions {
    async fn insert(&self, session: Session, refresh: Option<RefreshToken>) -> StoreResult<()> {
        // Both at once: nobody learns of either before both are acknowledged, and one alone goes with its time.
        let document = SessionDoc::of(&session).marked(self.tracking.since());
        let inserted = self.link.insert_one("insert_session", &self.sessions, &document);
        // Each to its end: one that is dropped because the other failed could still arrive when nobody
        // expects it any more.
        let (inserted, given) = future::join(inserted, self.give(refresh, &session)).await;
        inserted.and(given)
    }

    async fn get(&self, id: SessionId, now: Timestamp) -> StoreResult<Option<Session>> {
        let found = self.link.find_one("session", &self.sessions, doc! { "_id": uuid(id.0) }).await?;
        let session = found.map(SessionDoc::session).transpose()?;
        Ok(session.filter(|session| session.expires_at > now))
    }

    async fn by_user(
        &self,
        user: UserId,
        after: Option<SessionPosition>,
        limit: usize,
        now: Timestamp,
    ) -> StoreResult<Page<Session, SessionPosition>> {
        let filter = live_of(user, after, now);
        let found =
            self.link.find("sessions_by_user", &self.sessions, filter, page_of(limit, by_age())).await?;
        let sessions: StoreResult<Vec<Session>> = found.into_iter().map(SessionDoc::session).collect();
        Ok(Page::cut(sessions?, limit, Session::position))
    }

    async fn use_refresh(&self, secret: SecretHash, now: Timestamp) -> StoreResult<RefreshUse> {
        let unused = doc! {
            "_id": hash(secret),
            "used_at": { "$exists": false },
            "expires_at": { "$gt": date(now) },
        };
        let mut fields = doc! { "used_at": date(now), "version": next_version(now) };
        self.tracking.mark(&mut fields);
        let used = vec![doc! { "$set": fields }];
        let first =
            self.link.find_one_and_update("use_token", &self.tokens, unused, used, ReturnDocument::Before);
        if let Some(token) = first.await? {
            return Ok(RefreshUse::First(token.session()));
        }
        let stored = self.link.find_one("token", &self.tokens, doc! { "_id": hash(secret) }).await?;
        let stored = stored.filter(|token| token.is_there(now));
        Ok(stored.map_or(RefreshUse::Unknown, |token| RefreshUse::Again(token.session())))
    }

    async fn update(
        &self,
        session: Session,
        expected: Version,
        refresh: Option<RefreshToken>,
    ) -> StoreResult<bool> {
        let filter = doc! { "_id": uuid(session.id.0), "version": number(expected) };
        let changed = changed(&session, self.tracking)?;
        let update = self.link.update_one("update_session", &self.sessions, filter, changed, false);
        if !update.await?.matched {
            return Ok(false);
        }
        self.give(refresh, &session).await.map_err(after_the_change)?;
        Ok(true)
    }

    async fn unmerged(
        &self,
        closed_before: Timestamp,
        limit: usize,
        now: Timestamp,
    ) -> StoreResult<Vec<Session>> {
        let options = FindOptions::builder()
            .sort(doc! { "unmerged_since": 1 })
            .limit(i64::try_from(limit).unwrap_or(i64::MAX))
            .build();
        let filter = unmerged(closed_before, now);
        let found = self.link.find("unmerged_sessions", &self.sessions, filter, options).await?;
        found.into_iter().map(SessionDoc::session).collect()
    }
}

fn live_of(user: UserId, after: Option<SessionPosition>, now: Timestamp) -> Document {
    let after = after.map(|SessionPosition { created_at, session_id }| (created_at, session_id.0));
    let live = doc! { "user_id": uuid(user.0), "state": LIVE, "expires_at": { "$gt": date(now) } };
    newest_first(live, Period::default(), after)
}

fn unmerged(closed_before: Timestamp, now: Timestamp) -> Document {
    doc! { "unmerged_since": { "$lt": date(closed_before) }, "expires_at": { "$gt": date(now) } }
}

/// The session takes the place of the one before, whose holder and time of creation stay, and its mark.
fn changed(session: &Session, tracking: Tracking) -> StoreResult<Vec<Document>> {
    let mut changed =
        serialize_to_document(&SessionDoc::of(session)).map_err(|error| damaged(error.to_string()))?;
    let stays = ["_id", "user_id", "created_at", UNMIRRORED];
    for field in stays {
        changed.remove(field);
    }
    let mut stays: Document =
        stays.into_iter().map(|field| (field.to_owned(), format!("${field}").into())).collect();
    tracking.mark(&mut stays);
    Ok(vec![doc! { "$replaceWith": { "$mergeObjects": [stays, literal(&changed)?] } }])
}

/// The session has changed already, whatever became of what was to follow.
fn after_the_change(error: StoreError) -> StoreError {
    match error {
        StoreError::Unavailable { what, source } => StoreError::Unknown { what, source },
        error => error,
    }
}
