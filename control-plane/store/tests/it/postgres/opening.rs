//! Processes that start while the database is unavailable, or refuses them.

use tokio::sync::watch;

use super::*;

const OWNER: OwnerId = OwnerId([1; 16]);
const NEWER: &str = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
    VALUES (999999, 'of the future', TRUE, '', 0)";

/// Starts without the server, which is available again afterwards.
async fn start_without(server: &mut Server) -> (Postgres, PostgresCalls) {
    server.process.stop().await.unwrap();
    let database = Postgres::start(&server.url(), 2, Waits::default()).await.unwrap();
    server.start_again().await.unwrap();
    let calls = database.calls(Budget::default(), CallQuotas::default());
    (database, calls)
}

#[tokio::test]
async fn a_database_that_was_away_takes_no_statement_before_its_tables_are_there() {
    let mut server = Server::start().await.unwrap();
    let (database, calls) = start_without(&mut server).await;
    assert!(!database.is_open());
    renew(&calls, OWNER, LEASE).await.unwrap_err();
    database.keep_opening(|is_refused| assert!(!is_refused)).await;
    assert!(database.is_open());
    renew(&calls, OWNER, LEASE).await.unwrap();
}

#[tokio::test]
async fn a_database_that_was_away_and_has_tables_of_another_version_is_reported_and_takes_no_statement() {
    let mut server = Server::start().await.unwrap();
    Postgres::connect(&server.url(), 2).await.unwrap().close().await;
    server.ask(NEWER).await.unwrap();
    let (database, calls) = start_without(&mut server).await;
    let (sender, mut refused) = watch::channel(false);
    let opening = tokio::spawn({
        let database = database.clone();
        let set_refused = move |is_refused| {
            sender.send_replace(is_refused);
        };
        async move { database.keep_opening(set_refused).await }
    });
    refused.wait_for(|is_refused| *is_refused).await.unwrap();
    renew(&calls, OWNER, LEASE).await.unwrap_err();
    server.ask("DELETE FROM _sqlx_migrations WHERE version = 999999").await.unwrap();
    opening.await.unwrap();
    assert!(database.is_open() && !*refused.borrow());
    renew(&calls, OWNER, LEASE).await.unwrap();
}

#[tokio::test]
async fn a_database_that_refuses_at_the_start_is_not_taken_for_one_that_is_away() {
    let server = Server::start().await.unwrap();
    let unknown = format!("{}-unknown", server.url());
    let refused = Postgres::start(&unknown, 2, Waits::default()).await.map(drop);
    assert!(matches!(refused, Err(ConnectError::Refused(_))), "{refused:?}");
    Postgres::connect(&server.url(), 2).await.unwrap().close().await;
    server.ask(NEWER).await.unwrap();
    let refused = Postgres::start(&server.url(), 2, Waits::default()).await.map(drop);
    assert!(matches!(refused, Err(ConnectError::Schema(SchemaError::Newer { .. }))), "{refused:?}");
}

/// After a failover a name may lead to a standby for a while.
#[tokio::test]
async fn a_standby_is_not_used() {
    let server = Server::start().await.unwrap();
    Postgres::connect(&server.url(), 2).await.unwrap().close().await;
    // Sessions with this path find the schema's functions before PostgreSQL's own.
    let url = format!("{}?options[search_path]=standby,public,pg_catalog", server.url());
    let waits = Waits { acquire: Duration::from_secs(2), ..Waits::default() };
    let database = Postgres::start(&url, 2, waits).await.unwrap();
    let calls = database.calls(Budget::default(), CallQuotas::default());
    server.ask("CREATE SCHEMA standby").await.unwrap();
    server.ask("GRANT USAGE ON SCHEMA standby TO PUBLIC").await.unwrap();
    let standby = "CREATE FUNCTION standby.pg_is_in_recovery() RETURNS BOOLEAN LANGUAGE SQL AS 'SELECT TRUE'";
    server.ask(standby).await.unwrap();
    renew(&calls, OWNER, LEASE).await.unwrap_err();
    assert!(database.control().await.is_err());
    let away = Postgres::connect(&url, 2).await.map(drop);
    assert!(matches!(&away, Err(ConnectError::Unreachable(why)) if why.contains("is a standby")), "{away:?}");
    server.ask("DROP SCHEMA standby CASCADE").await.unwrap();
    renew(&calls, OWNER, LEASE).await.unwrap();
}
