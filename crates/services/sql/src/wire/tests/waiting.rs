//! Waits for rows through the protocol: who waits and for whom is shown, and a wait ends with either of the two connections.

use std::time::Duration;

use super::client::Client;
use super::server;

/// The bound that detects a hang.
const HANG: Duration = Duration::from_secs(120);

async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(HANG, future).await.unwrap_or_else(|_| panic!("{what} hangs"))
}

fn texts(rows: &[Vec<Option<String>>]) -> Vec<String> {
    rows.iter()
        .map(|row| row.iter().map(|cell| cell.as_deref().unwrap_or("null")).collect::<Vec<_>>().join("|"))
        .collect()
}

/// Waits until this many connections wait for a row; returns them, with those that they wait for.
async fn until_waiting(client: &mut Client, count: usize) -> Vec<String> {
    let sql = "select pid, wait_event, pg_blocking_pids(pid) from pg_stat_activity where wait_event_type = 'Lock' order by pid";
    loop {
        let rows = client.query(sql).await.rows();
        if rows.len() == count {
            return texts(&rows);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn who_waits_is_shown_and_the_wait_ends_with_either_connection() {
    let server = server(|_| {}).await;
    let mut holder = Client::trusted(&server).await;
    let mut look = Client::trusted(&server).await;
    holder.query("create table t (id int primary key, v int); insert into t values (1, 1)").await;
    for (ends, answer) in [("the transaction", &[][..]), ("a cancel", &["57014"]), ("the holder", &[])] {
        let mut waiter = Client::trusted(&server).await;
        assert_eq!(holder.query("begin; update t set v = v + 1 where id = 1").await.errors(), [""; 0]);
        waiter.send_query("update t set v = v + 10 where id = 1").await;
        let waits = in_time("the look", until_waiting(&mut look, 1)).await;
        assert_eq!(waits, [format!("{}|tuple|{{{}}}", waiter.key.0, holder.key.0)]);
        match ends {
            "the transaction" => _ = holder.query("commit").await,
            "a cancel" => _ = look.query(&format!("select pg_cancel_backend({})", waiter.key.0)).await,
            _ => _ = look.query(&format!("select pg_terminate_backend({})", holder.key.0)).await,
        }
        assert_eq!(in_time(ends, waiter.outcome()).await.errors(), answer, "{ends}");
        if ends == "a cancel" {
            holder.query("rollback").await;
        }
    }
    assert_eq!(texts(&look.query("select v from t").await.rows()), ["22"]);
    let mut waiter = Client::trusted(&server).await;
    look.query("begin; update t set v = 0").await;
    waiter.send_query("update t set v = v + 10 where id = 1").await;
    let mut other = Client::trusted(&server).await;
    in_time("the look", until_waiting(&mut other, 1)).await;
    drop(waiter);
    in_time("the end of who waited", until_waiting(&mut other, 0)).await;
    assert_eq!(look.query("commit").await.errors(), [""; 0]);
    server.stop().await;
}
