from kofn.exporters.base import Exporter as Exporter
from kofn.exporters.base import check_place as check_place
