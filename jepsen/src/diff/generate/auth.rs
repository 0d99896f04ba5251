//! Users, roles and grants, and who takes each step once they count.

use bytes::Bytes;
use prost::Message;
use proto::{authpb, etcdserverpb as pb};

use super::Generator;
use crate::diff::{exec::ROOT, program::Step};

const USERS: &[&str] = &["alice", "bob", "carol"];
const ROLES: &[&str] = &["r1", "r2", "r3"];

/// What the generator remembers of it.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Steps of this area so far.
    steps: u32,
    /// Whether authentication was turned on, and probably is.
    on: bool,
}

/// Whether a user may have been added.
pub(super) fn has_account(user: &str) -> bool {
    user == ROOT || USERS.contains(&user)
}

impl Generator {
    /// Who takes the next step; the nameless one while nobody is asked.
    pub(super) fn auth_user(&mut self) -> &'static str {
        if !self.auth.on {
            return "";
        }
        match self.below(100) {
            0..30 => ROOT,
            30..94 => self.pick(USERS),
            94..97 => "",
            // Never authenticates.
            _ => "mallory",
        }
    }

    /// Who may look at everything.
    pub(super) fn auth_root(&self) -> &'static str {
        if self.auth.on { ROOT } else { "" }
    }

    pub(super) fn auth(&mut self) {
        self.auth.steps += 1;
        if self.auth.steps == 1 {
            return self.auth_beginning();
        }
        match self.below(100) {
            0..8 => self.auth_enable(),
            8..10 => self.auth_disable(),
            10..14 => self.administer("Auth/AuthStatus", &pb::AuthStatusRequest {}),
            14..32 => self.authenticate(),
            32..62 => self.user_step(),
            _ => self.role_step(),
        }
    }

    /// Users, roles and grants enough for most later steps to be allowed or not.
    fn auth_beginning(&mut self) {
        // Refused: there is nobody to administer it.
        if self.chance(20) {
            self.administer("Auth/AuthEnable", &pb::AuthEnableRequest {});
        }
        for user in [ROOT].iter().chain(USERS) {
            let add = pb::AuthUserAddRequest {
                name: (*user).to_owned(),
                password: password(user),
                ..pb::AuthUserAddRequest::default()
            };
            self.administer("Auth/UserAdd", &add);
        }
        for role in [ROOT].iter().chain(ROLES) {
            let name = (*role).to_owned();
            self.administer("Auth/RoleAdd", &pb::AuthRoleAddRequest { name });
        }
        let pairs = [(ROOT, ROOT), ("alice", "r1"), ("bob", "r2"), ("bob", "r1")];
        for (user, role) in pairs {
            let (user, role) = (user.to_owned(), role.to_owned());
            self.administer(
                "Auth/UserGrantRole",
                &pb::AuthUserGrantRoleRequest { user, role },
            );
        }
        for _ in 0..4 {
            self.grant_permission();
        }
        if self.chance(80) {
            self.auth_enable();
        }
    }

    /// Mostly the administrator does it, who is nobody while it is off.
    fn administer(&mut self, method: &str, request: &impl Message) {
        let user = match self.chance(90) {
            true => self.auth_root(),
            false => self.auth_user(),
        };
        self.steps.push(Step::call(method, request).by(user));
    }

    fn auth_enable(&mut self) {
        self.administer("Auth/AuthEnable", &pb::AuthEnableRequest {});
        self.auth.on = true;
        for user in [ROOT].iter().chain(USERS) {
            self.log_in(user, password(user));
        }
    }

    fn auth_disable(&mut self) {
        self.administer("Auth/AuthDisable", &pb::AuthDisableRequest {});
        if self.chance(50) {
            self.auth_enable();
        }
    }

    fn log_in(&mut self, user: &str, password: String) {
        let name = user.to_owned();
        let authenticate = pb::AuthenticateRequest { name, password };
        self.steps
            .push(Step::call("Auth/Authenticate", &authenticate));
    }

    fn authenticate(&mut self) {
        let user = self.user();
        let password = match self.below(10) {
            0 => "wrong".to_owned(),
            1 => String::new(),
            _ => password(user),
        };
        self.log_in(user, password);
    }

    /// A user's name: of one that may exist.
    fn user(&mut self) -> &'static str {
        match self.below(20) {
            0..17 => self.pick(USERS),
            17 => ROOT,
            18 => "nobody",
            _ => "",
        }
    }

    fn role(&mut self) -> String {
        match self.below(20) {
            0..17 => self.pick(ROLES),
            17 => ROOT,
            18 => "none",
            _ => "",
        }
        .to_owned()
    }

    fn user_step(&mut self) {
        let user = self.user();
        let name = user.to_owned();
        match self.below(100) {
            0..20 => {
                let no_password = self.chance(15);
                let add = pb::AuthUserAddRequest {
                    name,
                    password: match self.chance(90) {
                        true => password(user),
                        false => String::new(),
                    },
                    options: no_password.then_some(authpb::UserAddOptions { no_password }),
                    hashed_password: String::new(),
                };
                self.administer("Auth/UserAdd", &add);
            }
            20..35 => self.administer("Auth/UserGet", &pb::AuthUserGetRequest { name }),
            35..45 => self.administer("Auth/UserList", &pb::AuthUserListRequest {}),
            45..53 => self.administer("Auth/UserDelete", &pb::AuthUserDeleteRequest { name }),
            53..60 => {
                let change = pb::AuthUserChangePasswordRequest {
                    name,
                    password: password(user),
                    hashed_password: String::new(),
                };
                self.administer("Auth/UserChangePassword", &change);
            }
            60..85 => {
                let (user, role) = (name, self.role());
                let grant = pb::AuthUserGrantRoleRequest { user, role };
                self.administer("Auth/UserGrantRole", &grant);
            }
            _ => {
                let role = self.role();
                let revoke = pb::AuthUserRevokeRoleRequest { name, role };
                self.administer("Auth/UserRevokeRole", &revoke);
            }
        }
    }

    fn role_step(&mut self) {
        let role = self.role();
        match self.below(100) {
            0..15 => self.administer("Auth/RoleAdd", &pb::AuthRoleAddRequest { name: role }),
            15..35 => self.administer("Auth/RoleGet", &pb::AuthRoleGetRequest { role }),
            35..45 => self.administer("Auth/RoleList", &pb::AuthRoleListRequest {}),
            45..52 => self.administer("Auth/RoleDelete", &pb::AuthRoleDeleteRequest { role }),
            52..85 => self.grant_permission(),
            _ => {
                let (key, range_end) = self.granted();
                let revoke = pb::AuthRoleRevokePermissionRequest {
                    role,
                    key,
                    range_end,
                };
                self.administer("Auth/RoleRevokePermission", &revoke);
            }
        }
    }

    fn grant_permission(&mut self) {
        let (key, range_end) = self.granted();
        let perm = authpb::Permission {
            perm_type: self.pick(&[0, 1, 2, 2, 2]),
            key,
            range_end,
        };
        let grant = pb::AuthRoleGrantPermissionRequest {
            name: self.role(),
            perm: match self.chance(98) {
                true => Some(perm),
                false => None,
            },
        };
        self.administer("Auth/RoleGrantPermission", &grant);
    }

    /// A range to grant: few, so that grants are widened, repeated and taken back.
    /// Never an empty one, which older versions took: users could then do other
    /// things.
    fn granted(&mut self) -> (Bytes, Bytes) {
        loop {
            let (key, end) = self.any_granted();
            let open = end.is_empty() || end == "\0";
            if !key.is_empty() && (open || key < end) {
                return (key, end);
            }
        }
    }

    fn any_granted(&mut self) -> (Bytes, Bytes) {
        let (key, end): (&[u8], &[u8]) = match self.below(12) {
            0..3 => (b"a", b""),
            3 => (b"a", b"b"),
            4 => (b"a", b"c"),
            5 => (b"b", b"c"),
            6 => (b"b", b"\0"),
            7 => (b"\0", b"\0"),
            _ => return self.range(),
        };
        (Bytes::from_static(key), Bytes::from_static(end))
    }
}

fn password(user: &str) -> String {
    format!("secret of {user}")
}
