//! Rights that come and go: one client gives and takes them, the others use what they
//! may, and what they may not.

use std::sync::Arc;
use std::time::Duration;

use checkers::history::{AuthChange, Blob, Outcome, Refusal, Request};
use rand::Rng;

use super::super::authority::{ROOT, log_in};
use super::super::client::{Client, get, put};

/// How many users and ranges there are; each user has a role of the same number.
const USERS: u32 = 3;
/// How long the one who changes rights waits in between.
const STEP: Duration = Duration::from_millis(200);
/// How long users wait for the store to ask who they are.
const BEGIN_POLL: Duration = Duration::from_millis(50);
/// What is counted when the store asks.
const ASKS: &str = "auth/asks";

/// Changes rights, or uses them.
pub(super) async fn run(client: Client) {
    match client.number {
        0 => administer(client).await,
        _ => use_rights(client).await,
    }
}

fn user(n: u32) -> Arc<str> {
    format!("user{n}").into()
}

fn role(n: u32) -> Arc<str> {
    format!("role{n}").into()
}

fn range(n: u32) -> (Blob, Blob) {
    let prefix = Blob::from(format!("auth/{n}/"));
    let end = prefix.prefix_end();
    (prefix, end)
}

/// Asks for a change until nobody can doubt that it is there. Each attempt is an
/// operation of its own in the history.
async fn insist(client: &mut Client, change: &AuthChange) {
    loop {
        match client.ask(Request::Auth(change.clone())).await {
            Outcome::Ok(_) => return,
            // It is there already, by an attempt that was not answered.
            Outcome::Fail(Refusal::Other(said)) if said.contains("already") => return,
            Outcome::Fail(Refusal::Other(said)) if said.contains("not enabled") => return,
            _ if client.token.is_some() => log_in_again(client, ROOT).await,
            _ => {}
        }
        tokio::time::sleep(STEP).await;
    }
}

async fn log_in_again(client: &mut Client, name: &str) {
    client.move_on();
    if let Some(channel) = client.world.channel(client.member) {
        let told = tokio::time::timeout(client.patience, log_in(&channel, name)).await;
        if let Ok(Ok(token)) = told {
            client.token = Some(token);
        }
    }
}

async fn administer(mut client: Client) {
    let mut begin = vec![
        AuthChange::AddUser(ROOT.into()),
        AuthChange::AddRole(ROOT.into()),
        AuthChange::GrantRole {
            user: ROOT.into(),
            role: ROOT.into(),
        },
    ];
    for n in 0..USERS {
        begin.push(AuthChange::AddUser(user(n)));
        begin.push(AuthChange::AddRole(role(n)));
        begin.push(AuthChange::GrantRole {
            user: user(n),
            role: role(n),
        });
    }
    begin.push(AuthChange::Enable);
    for change in &begin {
        insist(&mut client, change).await;
    }
    client.user = Some(ROOT.into());
    while client.token.is_none() {
        log_in_again(&mut client, ROOT).await;
        tokio::time::sleep(BEGIN_POLL).await;
    }
    client.world.count(ASKS);
    while !client.world.stopped() {
        let (n, of) = (
            client.rng.random_range(0..USERS),
            client.rng.random_range(0..USERS),
        );
        let (key, end) = range(of);
        let change = match client.rng.random_range(0..10) {
            0..4 => AuthChange::GrantRange {
                role: role(n),
                key,
                end,
                read: true,
                write: client.rng.random_bool(0.5),
            },
            4..7 => AuthChange::RevokeRange {
                role: role(n),
                key,
                end,
            },
            7 => AuthChange::RevokeRole {
                user: user(n),
                role: role(n),
            },
            8 => AuthChange::GrantRole {
                user: user(n),
                role: role(n),
            },
            _ => AuthChange::ChangePassword(user(n)),
        };
        let told = client.ask(Request::Auth(change)).await;
        if matches!(
            told,
            Outcome::Fail(Refusal::Unauthenticated) | Outcome::Info(_)
        ) {
            log_in_again(&mut client, ROOT).await;
        }
        tokio::time::sleep(STEP).await;
    }
    insist(&mut client, &AuthChange::Disable).await;
}

async fn use_rights(mut client: Client) {
    while client.world.peek(ASKS) == 0 && !client.world.stopped() {
        tokio::time::sleep(BEGIN_POLL).await;
    }
    let number = u32::try_from(client.number).unwrap_or(0) % USERS;
    let name = user(number);
    client.user = Some(name.clone());
    while !client.world.stopped() {
        if client.token.is_none() {
            log_in_again(&mut client, &name).await;
            if client.token.is_none() {
                tokio::time::sleep(BEGIN_POLL).await;
                continue;
            }
        }
        let n = client.rng.random_range(0..USERS);
        let key = format!("auth/{n}/{}", client.rng.random_range(0..3));
        let request = match client.rng.random_bool(0.5) {
            true => get(key),
            false => Request::Put(put(key, client.unique())),
        };
        let member = client.member;
        let told = client.ask(request).await;
        // A token is known to the member that gave it only.
        if matches!(told, Outcome::Fail(Refusal::Unauthenticated)) || client.member != member {
            client.token = None;
        }
    }
}
