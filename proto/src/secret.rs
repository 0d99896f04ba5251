//! How messages that hold a password, its hash or a token are printed: without it.
//! What members send each other holds entries of the log, and so all of these.

use std::fmt::{Debug, Formatter, Result};

use crate::{
    authpb::User,
    etcdserverpb::{
        AuthUserAddRequest, AuthUserChangePasswordRequest, AuthenticateRequest,
        AuthenticateResponse,
    },
    peer::{Chunk, Frame},
};

impl Debug for AuthenticateRequest {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("AuthenticateRequest")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Debug for AuthenticateResponse {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("AuthenticateResponse")
            .field("header", &self.header)
            .finish_non_exhaustive()
    }
}

impl Debug for AuthUserAddRequest {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("AuthUserAddRequest")
            .field("name", &self.name)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Debug for AuthUserChangePasswordRequest {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("AuthUserChangePasswordRequest")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Debug for User {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("User")
            .field("name", &self.name)
            .field("roles", &self.roles)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Debug for Frame {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("Frame")
            .field("bytes", &self.notes.len())
            .field("probe", &self.probe)
            .finish_non_exhaustive()
    }
}

impl Debug for Chunk {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("Chunk")
            .field("bytes", &(self.head.len() + self.data.len()))
            .field("last", &self.last)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No other text here has it in it.
    const SECRET: &str = "xylophone";

    #[test]
    fn no_message_prints_its_secret() {
        let secret = || SECRET.to_owned();
        let name = || "ann".to_owned();
        let printed = [
            format!(
                "{:?}",
                AuthenticateRequest {
                    name: name(),
                    password: secret(),
                }
            ),
            format!(
                "{:?}",
                AuthenticateResponse {
                    token: secret(),
                    ..AuthenticateResponse::default()
                }
            ),
            format!(
                "{:#?}",
                AuthUserAddRequest {
                    name: name(),
                    password: secret(),
                    hashed_password: secret(),
                    ..AuthUserAddRequest::default()
                }
            ),
            format!(
                "{:?}",
                AuthUserChangePasswordRequest {
                    name: name(),
                    password: secret(),
                    hashed_password: secret(),
                }
            ),
            format!(
                "{:?}",
                User {
                    name: name().into(),
                    password: secret().into(),
                    ..User::default()
                }
            ),
        ];
        for text in printed {
            assert!(!text.contains(SECRET), "{text}");
            assert!(text.contains("ann") || text.contains("Response"), "{text}");
            assert!(text.contains(".."), "{text} looks whole");
        }
    }

    /// A field that is new in the text of the protocol and holds a secret must be
    /// thought of here.
    #[test]
    fn every_message_with_a_secret_is_known() {
        let protocol = [
            include_str!("../proto/auth.proto"),
            include_str!("../proto/rpc.proto"),
            include_str!("../proto/v3election.proto"),
            include_str!("../proto/v3lock.proto"),
        ];
        let mut message = "";
        let mut found = Vec::new();
        for line in protocol.iter().flat_map(|text| text.lines()) {
            let mut words = line.split_whitespace();
            match (words.next(), words.next(), words.next()) {
                (Some("message"), Some(name), _) => message = name,
                (Some("string" | "bytes"), Some(field), Some("=")) => {
                    let field = field.to_ascii_lowercase();
                    if (field.contains("password") || field.contains("token"))
                        && found.last() != Some(&message)
                    {
                        found.push(message);
                    }
                }
                _ => {}
            }
        }
        assert_eq!(
            found,
            [
                "User",
                "AuthenticateRequest",
                "AuthUserAddRequest",
                "AuthUserChangePasswordRequest",
                "AuthenticateResponse",
            ]
        );
    }
}
