//! Sessions and refresh tokens as a migration sees them.

use std::sync::Arc;

use mobimir_core::{
    moving::{SessionKey, SessionSide, Side, Whole, WholeSession},
    policy::Entity,
    ports::StoreResult,
    secret::SecretHash,
    session::{RefreshToken, Session},
    time::Timestamp,
};
use mongodb::bson::{Bson, Document, RawDocument, doc, serialize_to_document};

use super::{
    MongoSessions,
    document::{SessionDoc, TokenDoc, hash},
};
use crate::{
    deployment::Deployment,
    leaves::{id, literal, next_version, uuid, uuid_of},
    link::damaged,
    moving::{InDocuments, Moving, Put, Tracking, document},
};

const SESSIONS: usize = 0;
const TOKENS: usize = 1;

impl MongoSessions {
    /// The sessions of a deployment, as a migration sees them.
    pub fn side(deployment: Arc<Deployment>) -> SessionSide {
        let tracked = Self { tracking: Tracking::On, ..Self::new(deployment.clone()) };
        Side {
            port: Arc::new(Self::new(deployment.clone())),
            tracked: Arc::new(tracked),
            moving: Arc::new(Moving::<WholeSession>::new(deployment)),
        }
    }
}

impl InDocuments for WholeSession {
    const ENTITY: Entity = Entity::Sessions;
    const COLLECTIONS: &'static [&'static str] = &["sessions", "refresh_tokens"];

    fn spot(key: SessionKey) -> (usize, Bson) {
        match key {
            SessionKey::Session(id) => (SESSIONS, uuid(id.0).into()),
            SessionKey::Token(secret) => (TOKENS, hash(secret).into()),
        }
    }

    fn key_at(collection: usize, stored: Bson, _document: &RawDocument) -> Option<SessionKey> {
        let key = match &stored {
            Bson::Binary(binary) if collection == TOKENS => {
                SessionKey::Token(SecretHash(binary.bytes.as_slice().try_into().ok()?))
            }
            _ => SessionKey::Session(id(uuid_of(&stored)?)),
        };
        (Self::spot(key) == (collection, stored)).then_some(key)
    }

    fn of_document(collection: usize, stored: &RawDocument) -> StoreResult<Self> {
        if collection == SESSIONS {
            return document::<SessionDoc>("sessions", stored)?.session().map(Self::Session);
        }
        let stored: TokenDoc = document("refresh_tokens", stored)?;
        let used = stored.used_at.is_some();
        Ok(Self::Token { token: stored.token()?, used })
    }

    fn document(&self) -> Document {
        let (_, id) = Self::spot(self.key());
        doc! { "_id": id }
    }

    fn put(self, now: Timestamp) -> StoreResult<Put> {
        let mut document = self.document();
        match self {
            Self::Session(session) => put_session(document, &session, now),
            Self::Token { token, used: false } => put_unused(document, token, now),
            Self::Token { token, used: true } => {
                document.insert("used_at", doc! { "$exists": false });
                put_used(document, token, now)
            }
        }
    }
}

fn put_session(mut older: Document, session: &Session, now: Timestamp) -> StoreResult<Put> {
    let session = SessionDoc::whole(session, now);
    older.insert("version", doc! { "$lt": session.version });
    Ok(Put { older, update: vec![doc! { "$replaceWith": literal(&session)? }].into() })
}

/// Whatever is there by its hash is this token, and may have been used.
fn put_unused(document: Document, token: RefreshToken, now: Timestamp) -> StoreResult<Put> {
    let token = serialize_to_document(&TokenDoc::whole(token, false, now));
    let mut token = token.map_err(|error| damaged(error.to_string()))?;
    token.remove("_id");
    Ok(Put { older: document, update: doc! { "$setOnInsert": token }.into() })
}

fn put_used(unused: Document, token: RefreshToken, now: Timestamp) -> StoreResult<Put> {
    let token = literal(&TokenDoc::whole(token, true, now))?;
    let used = doc! { "$mergeObjects": [token, { "version": next_version(now) }] };
    Ok(Put { older: unused, update: vec![doc! { "$replaceWith": used }].into() })
}
