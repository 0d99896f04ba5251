//! bbolt's file format, read and written: what etcd keeps its data in and what
//! its backups are.
