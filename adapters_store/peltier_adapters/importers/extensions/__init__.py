"""Readers of AdapterHub's adapters and of the files of the methods' authors. Its import registers them."""

from peltier_adapters.importers.extensions.adapterhub import read_adapterhub
from peltier_adapters.importers.extensions.authors import read_adamix, read_compacter, read_unipelt
from peltier_adapters.importers.run import READERS

READERS |= {
    "adapterhub": read_adapterhub,
    "compacter": read_compacter,
    "unipelt": read_unipelt,
    "adamix": read_adamix,
}
