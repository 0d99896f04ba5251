//! What can be wrong with a file, by page and offset, and what a writer refuses.

use std::io;

use thiserror::Error;

/// Says why a file cannot be read.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The bytes could not be had.
    #[error("cannot read at offset {offset}: {source}")]
    Io {
        /// Where in the file.
        offset: u64,
        /// What the system said.
        source: io::Error,
    },
    /// Neither of the two meta pages is valid.
    #[error("not a bbolt file: {0}")]
    NotBbolt(MetaProblem),
    /// A page is not what the file says it is.
    #[error("page {page} at offset {offset}: {problem}")]
    Corrupt {
        /// The page.
        page: u64,
        /// Where in the file the trouble is.
        offset: u64,
        /// What is wrong.
        problem: Problem,
    },
}

/// Says what is wrong with a meta page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum MetaProblem {
    /// The file ends before it.
    #[error("the file is too short for its meta pages")]
    Short,
    /// The magic number is another.
    #[error("its magic number is {0:#x}")]
    Magic(u32),
    /// The format is of another version.
    #[error("its format version is {0}, version 2 is read")]
    Version(u32),
    /// The checksum does not fit.
    #[error("the checksum of its meta page does not match")]
    Checksum,
    /// The page size is not a power of two within bounds.
    #[error("its page size is {0}")]
    PageSize(u32),
    /// The file has fewer bytes than it has pages in use.
    #[error(
        "it is truncated: {used} pages of {page_size} bytes are in use, the file has {len} bytes"
    )]
    Truncated {
        /// Pages in use.
        used: u64,
        /// Bytes of a page.
        page_size: u64,
        /// Bytes of the file.
        len: u64,
    },
}

/// Says what is wrong with a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Problem {
    /// The page lies behind the used part of the file.
    #[error("it is not within the {used} pages in use")]
    Outside {
        /// Pages in use.
        used: u64,
    },
    /// The page calls itself by another number.
    #[error("it says it is page {0}")]
    Id(u64),
    /// The page is not of the kind that must be here.
    #[error("its kind is {0:#x}, which cannot be here")]
    Kind(u16),
    /// The run of pages is longer than the reader's limit.
    #[error("it is {0} bytes long, more than is read at once")]
    TooLong(u64),
    /// The table of elements does not fit the page.
    #[error("{0} elements do not fit it")]
    Count(u64),
    /// An element points out of the page.
    #[error("element {0} points out of it")]
    Element(u32),
    /// The keys are not ascending.
    #[error("the key of element {0} is not above the one before it")]
    Order(u32),
    /// The tree is deeper than the reader's limit.
    #[error("it is more than {0} levels below the root")]
    Depth(usize),
    /// The page is part of the tree, or free, more than once.
    #[error("it is used more than once")]
    Twice,
    /// A bucket is inside a bucket.
    #[error("element {0} is a bucket within a bucket, which is not read")]
    Nested(u32),
    /// A plain value is where only buckets may be.
    #[error("element {0} is not a bucket")]
    NotBucket(u32),
    /// The description of a bucket is too short or does not parse.
    #[error("the bucket of element {0} is not described well")]
    Bucket(u32),
    /// The root bucket has more buckets than the reader's limit.
    #[error("more than {0} buckets")]
    Buckets(usize),
    /// The page is neither part of a tree nor free.
    #[error("it is neither in use nor free")]
    Lost,
}

/// Says why a file cannot be written.
#[derive(Debug, Error)]
pub enum WriteError {
    /// The bytes could not be put.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A key or a bucket is not above the one before it.
    #[error("a {0} is not above the one before it")]
    Order(&'static str),
    /// A key is empty or longer than bbolt takes.
    #[error("a key of {0} bytes; bbolt takes 1 to 32768")]
    KeySize(usize),
    /// A value is longer than bbolt takes.
    #[error("a value of {0} bytes, more than bbolt takes")]
    ValueSize(usize),
    /// A pair was put before any bucket was begun.
    #[error("a pair outside any bucket")]
    NoBucket,
}
