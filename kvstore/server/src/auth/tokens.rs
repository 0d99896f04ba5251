//! Simple tokens: random text that every member remembers.
//!
//! A token is sixteen random letters and the index of the log entry that gave it out
//! (etcd: `server/auth/simple_token.go`). Every member applies that entry, so every
//! member knows the token; how long it is remembered each counts for itself, from
//! its last use there.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use mvcc::AuthCommand;
use rand::Rng as _;

/// Letters of the random part.
const PREFIX_LETTERS: usize = 16;
const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// How often tokens that ended are looked for (etcd: simpleTokenTTLResolution).
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Most tokens remembered. Beyond it the one that would end soonest goes, and its
/// client authenticates again.
const TOKENS_MAX: usize = 100_000;

/// Draws the random part of a token from the system's own generator.
pub(crate) fn random_prefix() -> String {
    let mut rng = rand::rng();
    (0..PREFIX_LETTERS)
        .map(|_| char::from(LETTERS[rng.random_range(0..LETTERS.len())]))
        .collect()
}

/// Puts a token together.
pub(crate) fn simple_token(prefix: &str, index: u64) -> String {
    format!("{prefix}.{index}")
}

/// Takes the index out of a token.
pub(crate) fn index_of(token: &str) -> Option<u64> {
    token.rsplit_once('.')?.1.parse().ok()
}

/// The tokens given out.
pub(crate) struct SimpleTokens {
    ttl: Duration,
    known: BTreeMap<String, Known>,
    swept: Duration,
}

struct Known {
    user: Arc<str>,
    ends: Duration,
}

impl SimpleTokens {
    /// Begins to remember; `ttl` counts from the last use.
    pub(crate) fn new(ttl: Duration) -> Self {
        Self {
            ttl,
            known: BTreeMap::new(),
            swept: Duration::ZERO,
        }
    }

    /// Does what a change that was applied means for tokens.
    pub(crate) fn follow(&mut self, command: &AuthCommand, index: u64, now: Duration) {
        match command {
            AuthCommand::Authenticate { user, token } => {
                if let Ok(prefix) = std::str::from_utf8(token.expose())
                    && !prefix.is_empty()
                {
                    self.assign(simple_token(prefix, index), user, now);
                }
            }
            AuthCommand::UserDelete { name } | AuthCommand::UserChangePassword { name, .. } => {
                self.known.retain(|_, known| *known.user != **name);
            }
            AuthCommand::Disable => self.known.clear(),
            AuthCommand::Enable
            | AuthCommand::UserAdd { .. }
            | AuthCommand::UserGrantRole { .. }
            | AuthCommand::UserRevokeRole { .. }
            | AuthCommand::RoleAdd { .. }
            | AuthCommand::RoleDelete { .. }
            | AuthCommand::RoleGrantPermission { .. }
            | AuthCommand::RoleRevokePermission { .. } => {}
        }
    }

    fn assign(&mut self, token: String, user: &str, now: Duration) {
        if now >= self.swept + SWEEP_INTERVAL {
            self.known.retain(|_, known| known.ends > now);
            self.swept = now;
        }
        if self.known.len() >= TOKENS_MAX
            && let Some(soonest) = self.known.iter().min_by_key(|(_, known)| known.ends)
        {
            let soonest = soonest.0.clone();
            self.known.remove(&soonest);
        }
        let known = Known {
            user: user.into(),
            ends: now + self.ttl,
        };
        self.known.insert(token, known);
    }

    /// Says whose a token is, and gives it its full time again.
    pub(crate) fn user_of(&mut self, token: &str, now: Duration) -> Option<Arc<str>> {
        let known = self.known.get_mut(token)?;
        if known.ends <= now {
            self.known.remove(token);
            return None;
        }
        known.ends = now + self.ttl;
        Some(Arc::clone(&known.user))
    }
}

#[cfg(test)]
mod tests {
    use mvcc::Secret;

    use super::*;

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn login(tokens: &mut SimpleTokens, user: &str, index: u64, now: Duration) -> String {
        let command = AuthCommand::Authenticate {
            user: user.to_owned(),
            token: Secret::new("prefix"),
        };
        tokens.follow(&command, index, now);
        simple_token("prefix", index)
    }

    #[test]
    fn a_token_lives_from_its_last_use() {
        let mut tokens = SimpleTokens::new(s(300));
        let token = login(&mut tokens, "ann", 7, s(0));
        assert_eq!(token, "prefix.7");
        assert_eq!(tokens.user_of(&token, s(299)).as_deref(), Some("ann"));
        assert_eq!(tokens.user_of(&token, s(598)).as_deref(), Some("ann"));
        assert_eq!(tokens.user_of(&token, s(898)), None);
        assert_eq!(tokens.user_of(&token, s(0)), None, "gone is gone");
        assert_eq!(tokens.user_of("prefix.8", s(0)), None);
    }

    #[test]
    fn a_changed_user_starts_anew() {
        let changes = [
            AuthCommand::UserDelete {
                name: "ann".to_owned(),
            },
            AuthCommand::UserChangePassword {
                name: "ann".to_owned(),
                password: Secret::new("hash"),
            },
        ];
        for change in changes {
            let mut tokens = SimpleTokens::new(s(300));
            let ann = login(&mut tokens, "ann", 1, s(0));
            let bob = login(&mut tokens, "bob", 2, s(0));
            tokens.follow(&change, 3, s(1));
            assert_eq!(tokens.user_of(&ann, s(1)), None);
            assert_eq!(tokens.user_of(&bob, s(1)).as_deref(), Some("bob"));
            tokens.follow(&AuthCommand::Disable, 4, s(2));
            assert_eq!(tokens.user_of(&bob, s(2)), None);
        }
    }

    #[test]
    fn what_ended_is_forgotten() {
        let mut tokens = SimpleTokens::new(s(10));
        for index in 0..50 {
            login(&mut tokens, "ann", index, s(index));
        }
        assert!(tokens.known.len() <= 11, "{}", tokens.known.len());
    }

    #[test]
    fn a_signed_token_is_not_remembered() {
        let mut tokens = SimpleTokens::new(s(10));
        let command = AuthCommand::Authenticate {
            user: "ann".to_owned(),
            token: Secret::default(),
        };
        tokens.follow(&command, 1, s(0));
        assert!(tokens.known.is_empty());
    }

    #[test]
    fn prefixes_are_letters_and_differ() {
        let (one, other) = (random_prefix(), random_prefix());
        assert_eq!(one.len(), PREFIX_LETTERS);
        assert!(one.bytes().all(|letter| letter.is_ascii_alphabetic()));
        assert_ne!(one, other);
    }
}
