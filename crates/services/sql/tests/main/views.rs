//! Views that read views, and the objects that they read.

use crate::support::{check, engine, on_a_sessions_stack, run, session};

#[tokio::test]
async fn a_view_cannot_read_itself() {
    // On a thread with the stack of a server's threads.
    let script = async {
        let mut s = session();
        check(
            &mut s,
            &[
                ("CREATE VIEW v AS SELECT 1 AS a", "CREATE VIEW"),
                ("CREATE OR REPLACE VIEW v AS SELECT a FROM v", "error 42P17"),
                ("CREATE VIEW w AS SELECT a FROM v", "CREATE VIEW"),
                (
                    "CREATE VIEW x AS WITH v AS (SELECT 5 AS a) SELECT a FROM v WHERE a > (SELECT a FROM w)",
                    "CREATE VIEW",
                ),
                ("CREATE OR REPLACE VIEW v AS SELECT a FROM x", "error 42P17"),
                ("CREATE OR REPLACE VIEW v AS WITH v AS (SELECT 2 AS a) SELECT a FROM v", "CREATE VIEW"),
                ("SELECT * FROM v", "2"),
                ("SELECT * FROM x", "5"),
                ("SELECT table_name FROM information_schema.views ORDER BY 1", "v\nw\nx"),
            ],
        )
        .await;
    };
    tokio::spawn(script).await.expect("nobody panicked");
}

#[test]
fn a_ring_of_views_that_two_sessions_closed_is_refused_when_it_is_read() {
    on_a_sessions_stack(async {
        let engine = engine();
        let (mut a, mut b) = (engine.session("a"), engine.session("b"));
        run(&mut a, "CREATE VIEW v AS SELECT 1 AS a; CREATE VIEW w AS SELECT 1 AS a").await;
        check(&mut a, &[("BEGIN", "BEGIN"), ("CREATE OR REPLACE VIEW v AS SELECT a FROM w", "CREATE VIEW")]).await;
        check(&mut b, &[("CREATE OR REPLACE VIEW w AS SELECT a FROM v", "CREATE VIEW")]).await;
        check(
            &mut a,
            &[
                ("COMMIT", "COMMIT"),
                ("SELECT * FROM v", "error 42P17"),
                ("SELECT table_name FROM information_schema.tables WHERE table_type = 'VIEW' AND table_schema = 'public' ORDER BY 1", "v\nw"),
                ("CREATE OR REPLACE VIEW v AS SELECT 3 AS a", "CREATE VIEW"),
                ("SELECT * FROM w", "3"),
            ],
        )
        .await;
        run(&mut a, "CREATE VIEW v0 AS SELECT 1 AS a").await;
        for n in 1..32 {
            let made = run(&mut a, &format!("CREATE VIEW v{n} AS SELECT a FROM v{}", n - 1)).await;
            assert_eq!(made, "CREATE VIEW");
        }
        check(
            &mut a,
            &[
                ("SELECT * FROM v31", "1"),
                ("CREATE VIEW v32 AS SELECT a FROM v31", "CREATE VIEW"),
                ("SELECT * FROM v32", "error 54001"),
            ],
        )
        .await;
        // The depths of views that read each other are added.
        let deep = |from: &str| format!("SELECT {}a OR a AS a FROM {from}", "a OR ".repeat(200));
        let deep = [deep("(SELECT true AS a) AS t"), deep("d1"), deep("d2")];
        for (n, sql) in deep.iter().enumerate() {
            assert_eq!(run(&mut a, &format!("CREATE VIEW d{} AS {sql}", n + 1)).await, "CREATE VIEW");
        }
        check(&mut a, &[("SELECT * FROM d2", "true"), ("SELECT * FROM d3", "error 54001")]).await;
    });
}

#[tokio::test]
async fn what_a_view_reads_stays() {
    let mut s = session();
    run(&mut s, "CREATE TABLE t (a int, b int); CREATE VIEW v AS SELECT a, b FROM t; CREATE VIEW w AS SELECT a FROM v")
        .await;
    check(
        &mut s,
        &[
            ("DROP TABLE t", "error 2BP01: cannot drop table t because other objects depend on it"),
            ("DROP VIEW v", "error 2BP01"),
            ("ALTER TABLE t RENAME TO u", "error 2BP01"),
            ("ALTER TABLE t RENAME COLUMN a TO c", "error 2BP01"),
            ("CREATE OR REPLACE VIEW v AS SELECT b FROM t", "error 42P16"),
            ("CREATE OR REPLACE VIEW v AS SELECT a, b, a + b AS c FROM t", "CREATE VIEW"),
            ("ALTER TABLE t ADD COLUMN d int", "ALTER TABLE"),
            ("SELECT count(*) FROM information_schema.columns WHERE table_name = 'v'", "3"),
            ("DROP VIEW v, w", "DROP VIEW"),
            ("CREATE VIEW v AS SELECT a, b FROM t", "CREATE VIEW"),
            ("CREATE VIEW w AS SELECT a FROM v", "CREATE VIEW"),
            ("DROP TABLE t CASCADE", "DROP TABLE"),
            ("SELECT * FROM w", "error 42P01"),
            ("CREATE VIEW w AS SELECT 1 AS z", "CREATE VIEW"),
        ],
    )
    .await;
}
