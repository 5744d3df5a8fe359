//! The 22 queries, with the parameters that TPC-H 3.0.1 gives for validation (clauses 2.4.1 to 2.4.22), as files in `tpch/`.

/// Number and text of each.
pub const QUERIES: [(u8, &str); 22] = [
    (1, include_str!("../../tpch/q01.sql")),
    (2, include_str!("../../tpch/q02.sql")),
    (3, include_str!("../../tpch/q03.sql")),
    (4, include_str!("../../tpch/q04.sql")),
    (5, include_str!("../../tpch/q05.sql")),
    (6, include_str!("../../tpch/q06.sql")),
    (7, include_str!("../../tpch/q07.sql")),
    (8, include_str!("../../tpch/q08.sql")),
    (9, include_str!("../../tpch/q09.sql")),
    (10, include_str!("../../tpch/q10.sql")),
    (11, include_str!("../../tpch/q11.sql")),
    (12, include_str!("../../tpch/q12.sql")),
    (13, include_str!("../../tpch/q13.sql")),
    (14, include_str!("../../tpch/q14.sql")),
    (15, include_str!("../../tpch/q15.sql")),
    (16, include_str!("../../tpch/q16.sql")),
    (17, include_str!("../../tpch/q17.sql")),
    (18, include_str!("../../tpch/q18.sql")),
    (19, include_str!("../../tpch/q19.sql")),
    (20, include_str!("../../tpch/q20.sql")),
    (21, include_str!("../../tpch/q21.sql")),
    (22, include_str!("../../tpch/q22.sql")),
];
