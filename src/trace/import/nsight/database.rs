//! Read-only access to an untrusted SQLite file: its tables, columns and rows.

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::Mmap;
use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, OptionalExtension, ffi};

use crate::import::input::InputFile;
use base::error::{Error, Result};

/// An SQLite file that can be opened several times, on disk or unpacked.
pub(super) struct DatabaseFile {
    path: PathBuf,
    unpacked: Option<Arc<Mmap>>,
}

impl DatabaseFile {
    /// Opens the database of an input. Unpacks a compressed file or archive member into an anonymous
    /// temporary file. Returns an error if that fails.
    pub fn from_input(input: &InputFile) -> Result<Self> {
        let path = input.path.clone();
        if input.begins_plain(MAGIC)? {
            return Ok(Self { path, unpacked: None });
        }
        let file = input.to_whole_file()?;
        // SQLite cannot open files in WAL mode (format 2) from memory; without a log they are equivalent
        // to format 1
        let mut versions = [0; 2];
        if file.read_exact_at(&mut versions, 18).is_ok() && versions == [2, 2] {
            file.write_all_at(&[1, 1], 18).map_err(Error::io(&path))?;
        }
        // SAFETY: the file is anonymous and open nowhere else, so nobody modifies or truncates it.
        let map = unsafe { Mmap::map(&file) }.map_err(Error::io(&path))?;
        Ok(Self { path, unpacked: Some(Arc::new(map)) })
    }

    fn connect(&self) -> rusqlite::Result<Connection> {
        let Some(map) = &self.unpacked else {
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
                | OpenFlags::SQLITE_OPEN_URI
                | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            return Connection::open_with_flags(uri(&self.path), flags);
        };
        let connection = Connection::open_in_memory()?;
        let length = i64::try_from(map.len()).unwrap_or(i64::MAX);
        // SAFETY: the bytes are only read, and [`Database`] keeps the map until its connection is
        // closed.
        let code = unsafe {
            ffi::sqlite3_deserialize(
                connection.handle(),
                c"main".as_ptr(),
                map.as_ptr().cast_mut(),
                length,
                length,
                ffi::SQLITE_DESERIALIZE_READONLY,
            )
        };
        match code {
            ffi::SQLITE_OK => Ok(connection),
            code => Err(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)),
        }
    }
}

const MAGIC: &[u8] = b"SQLite format 3\0";

pub(super) struct Database {
    connection: Connection,
    /// Declared after `connection`, which reads it, so that it is dropped later.
    _unpacked: Option<Arc<Mmap>>,
    path: PathBuf,
    /// Ordinary tables by name. Views and virtual tables are excluded, because they could run arbitrary
    /// code.
    tables: BTreeMap<String, Table>,
    /// Names of views and virtual tables, each with its kind.
    unread: BTreeMap<String, &'static str>,
    /// All of `StringIds`, loaded if its ids are not an integer primary key.
    strings: OnceCell<HashMap<i64, String>>,
}

/// A table with its actual name, which may have a suffix.
struct Table {
    name: String,
    /// Plain columns; generated ones could compute anything.
    columns: Vec<String>,
    key: Option<String>,
}

/// Maximum length of a text or blob in bytes; kernel names have some thousands.
const LONGEST: i32 = 16 << 20;

/// Tables that the importer reads, and columns that one must have to be read under another name. Newer
/// versions may add a suffix to the name, as CUPTI does; a full-text index adds tables of its own.
const KNOWN: [(&str, &[&str]); 8] = [
    ("CUPTI_ACTIVITY_KIND_KERNEL", &["start", "end"]),
    ("CUPTI_ACTIVITY_KIND_MEMCPY", &["start", "end"]),
    ("CUPTI_ACTIVITY_KIND_MEMSET", &["start", "end"]),
    ("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", &["start", "end"]),
    ("CUPTI_ACTIVITY_KIND_RUNTIME", &["start", "end"]),
    ("NVTX_EVENTS", &["start", "end"]),
    ("StringIds", &["id", "value"]),
    ("TARGET_INFO_GPU", &["name"]),
];

#[derive(Debug, Default)]
pub(super) struct RowCount {
    pub count: u64,
    pub broken: Option<String>,
}

/// A row, with values in the order of the requested columns. Missing or mistyped values are `None`.
pub(super) struct DatabaseRow<'a>(&'a rusqlite::Row<'a>);

impl DatabaseRow<'_> {
    pub fn integer(&self, column: usize) -> Option<i64> {
        match self.0.get_ref(column) {
            Ok(ValueRef::Integer(value)) => Some(value),
            _ => None,
        }
    }

    pub fn text(&self, column: usize) -> Option<&str> {
        match self.0.get_ref(column) {
            Ok(ValueRef::Text(bytes)) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }
}

impl Database {
    /// Opens a file as read-only and immutable: no locks, journals or side files.
    pub fn open(file: &DatabaseFile) -> Result<Self> {
        let path = &file.path;
        let unreadable = |error: rusqlite::Error| {
            Error::input_help(
                format!("{}: not a readable SQLite database: {error}", path.display()),
                "the file is damaged or not a database; export it again with `nsys export --type sqlite`",
            )
        };
        let connection = file.connect().map_err(unreadable)?;
        // Check damaged pages before use, and forbid functions in the schema.
        connection
            .execute_batch(
                "PRAGMA cell_size_check = ON; PRAGMA trusted_schema = OFF; PRAGMA query_only = ON;",
            )
            .map_err(unreadable)?;
        // defensive mode for malicious schemas, and a limit on value sizes
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true).map_err(unreadable)?;
        connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, LONGEST).map_err(unreadable)?;
        let mut names = Vec::new();
        let mut unread = BTreeMap::new();
        {
            let sql = "SELECT name, type, sql LIKE 'CREATE TABLE%' FROM sqlite_master WHERE type IN ('table', 'view')";
            let mut statement = connection.prepare(sql).map_err(unreadable)?;
            let mut rows = statement.query([]).map_err(unreadable)?;
            while let Some(row) = rows.next().map_err(unreadable)? {
                let row = DatabaseRow(row);
                let Some(name) = row.text(0).map(str::to_owned) else { continue };
                match (row.text(1), row.integer(2)) {
                    (Some("table"), Some(1)) => names.push(name),
                    (Some("view"), _) => drop(unread.insert(name, "a view")),
                    _ => drop(unread.insert(name, "a virtual table")),
                }
            }
        }
        let mut tables = BTreeMap::new();
        for name in names {
            let (mut columns, mut key) = (Vec::new(), None);
            // excludes generated columns, which another pragma lists
            let sql = format!("PRAGMA table_info({})", quoted(&name));
            let mut statement = connection.prepare(&sql).map_err(unreadable)?;
            let mut rows = statement.query([]).map_err(unreadable)?;
            while let Some(row) = rows.next().map_err(unreadable)? {
                let row = DatabaseRow(row);
                columns.extend(row.text(1).map(str::to_owned));
                let is_key = row.integer(5) == Some(1)
                    && row.text(2).is_some_and(|kind| kind.eq_ignore_ascii_case("INTEGER"));
                if is_key {
                    key = columns.last().cloned();
                }
            }
            tables.insert(name.clone(), Table { name, columns, key });
        }
        for (known, needed) in KNOWN {
            let fits = |own: &&String| {
                let columns = &tables[*own].columns;
                let has = |name: &str| columns.iter().any(|column| column.eq_ignore_ascii_case(name));
                needed.iter().all(|name| has(name))
            };
            let own = suffixed(known, tables.keys()).rfind(fits).cloned();
            let own = own.filter(|_| !tables.contains_key(known));
            if let Some(table) = own.and_then(|own| tables.remove(&own)) {
                tables.insert(known.into(), table);
            }
        }
        Ok(Self {
            connection,
            _unpacked: file.unpacked.clone(),
            path: path.clone(),
            tables,
            unread,
            strings: OnceCell::new(),
        })
    }

    /// Notes on tables that are read under another name, and on known tables that are not read.
    pub fn other_names(&self) -> impl Iterator<Item = String> {
        KNOWN.iter().flat_map(|(known, _)| {
            let read = self.tables.get(*known).filter(|table| table.name != *known);
            let read = read.map(|table| format!("table {} is read as {known}", table.name));
            let left = suffixed(known, self.tables.keys());
            let left = left.map(|table| format!("table {table} is not known and not read"));
            let unread = self.unread(known).map(|kind| format!("{known} is {kind} and not read"));
            read.into_iter().chain(left).chain(unread)
        })
    }

    /// Kind of a known table that is not read: `a view`.
    pub fn unread(&self, table: &str) -> Option<&'static str> {
        self.unread.get(table).filter(|_| !self.has(table)).copied()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn tables(&self) -> impl Iterator<Item = &str> + Clone {
        self.tables.keys().map(String::as_str)
    }

    pub fn has(&self, table: &str) -> bool {
        self.tables.contains_key(table)
    }

    pub fn missing<'a>(&self, table: &str, columns: &[&'a str]) -> Vec<&'a str> {
        columns.iter().copied().filter(|column| self.column(table, column).is_none()).collect()
    }

    fn column(&self, table: &str, column: &str) -> Option<&str> {
        let columns = &self.tables.get(table)?.columns;
        columns.iter().map(String::as_str).find(|name| name.eq_ignore_ascii_case(column))
    }

    /// Calls `each` with every row of a table, in file order; a missing table has none. A missing column
    /// yields `None` in every row. Rows before an error remain valid.
    pub fn rows(&self, table: &str, columns: &[&str], mut each: impl FnMut(&DatabaseRow)) -> RowCount {
        let mut read = RowCount::default();
        let Some(Table { name, .. }) = self.tables.get(table) else { return read };
        let wanted: Vec<String> = columns
            .iter()
            .map(|column| self.column(table, column).map_or("NULL".into(), quoted))
            .collect();
        let sql = format!("SELECT {} FROM {}", wanted.join(", "), quoted(name));
        let mut reading = || -> rusqlite::Result<()> {
            let mut statement = self.connection.prepare(&sql)?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                read.count += 1;
                each(&DatabaseRow(row));
            }
            Ok(())
        };
        if let Err(error) = reading() {
            read.broken =
                Some(format!("table {table}: {error} after {} rows; the rest is missing", read.count));
        }
        read
    }

    pub fn string(&self, id: i64) -> Option<String> {
        let table = self.tables.get("StringIds")?;
        let value = quoted(self.column("StringIds", "value")?);
        if !table.key.as_ref().is_some_and(|key| key.eq_ignore_ascii_case("id")) {
            return self.all_strings().get(&id).cloned();
        }
        let sql = format!("SELECT {value} FROM {} WHERE id = ?1", quoted(&table.name));
        let mut statement = self.connection.prepare_cached(&sql).ok()?;
        statement
            .query_row([id], |row| Ok(DatabaseRow(row).text(0).map(str::to_owned)))
            .optional()
            .ok()??
    }

    fn all_strings(&self) -> &HashMap<i64, String> {
        self.strings.get_or_init(|| {
            let mut strings = HashMap::new();
            self.rows("StringIds", &["id", "value"], |row| {
                if let (Some(id), Some(text)) = (row.integer(0), row.text(1)) {
                    strings.entry(id).or_insert_with(|| text.to_owned());
                }
            });
            strings
        })
    }
}

/// Names that extend a known table's name by a suffix: `CUPTI_ACTIVITY_KIND_KERNEL_V3`, `..._MEMCPY2`.
fn suffixed<'a>(
    known: &str,
    names: impl DoubleEndedIterator<Item = &'a String>,
) -> impl DoubleEndedIterator<Item = &'a String> {
    names.filter(move |name| {
        let suffix = name.get(known.len()..).filter(|_| name.starts_with(known)).unwrap_or_default();
        suffix.starts_with(|first: char| first == '_' || first.is_ascii_digit())
            && !name.eq_ignore_ascii_case(known)
    })
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// SQLite URI of the file, marked immutable.
fn uri(path: &Path) -> String {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let mut uri = String::from("file:");
    for byte in absolute.as_os_str().as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'-' => {
                uri.push(*byte as char)
            }
            other => uri.push_str(&format!("%{other:02X}")),
        }
    }
    uri + "?mode=ro&immutable=1"
}
